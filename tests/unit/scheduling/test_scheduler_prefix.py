"""Prefix hits, as the scheduler plans them: what is found, what is spared, who shares with whom, what is given up."""

import numpy as np
import pytest
from scheduler_driver import Driver, limits
from simulated_device import SimulatedDevice

from deepinfer_core import _native
from deepinfer_core.interfaces.scheduler import PrefixRules, SchedulerLimits, SchedulerRequest
from deepinfer_core.scheduling.native import NativeScheduler

NO_REPLAY = PrefixRules(0, 0, 0)
B = 4  # the block size


def driver(rules: PrefixRules = NO_REPLAY, **sizes: int) -> Driver:
    return Driver(limits(block_size=B, prefix=rules, **sizes))


def prompt(length: int, begin: int = 0) -> list[int]:
    return [(begin + i * i) % 7 for i in range(length)]


def cached_of(one: Driver, tokens: list[int], *, new: int = 3, salt: int | None = 0, **options: int) -> int:
    """Serve a request to its end; how many of its tokens were spared."""
    number = one.add(tokens, new, salt=salt, **options)
    one.drain(depth=1)
    return one.cached[number]


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("length", range(1, 3 * B + 2))
def test_a_prompt_that_comes_again_spares_all_full_blocks_but_its_last_token(length: int, drafts: int) -> None:
    one = driver(max_drafts=drafts)
    assert cached_of(one, prompt(length)) == 0
    assert cached_of(one, prompt(length), decoder_start=length - 1) == min(length // B * B, length - 1)


@pytest.mark.parametrize("rules", [PrefixRules(2, 3, 5), PrefixRules(0, 1, 9), PrefixRules(7, 0, 7)])
@pytest.mark.parametrize("length", range(B, 6 * B + 2))
def test_a_hit_spares_what_the_rules_leave(length: int, rules: PrefixRules) -> None:
    start = max(0, length - 3)
    hit = length // B * B
    spared = min(hit - rules.key_rows, max(start - rules.kept_rows, length - 1 - rules.logit_rows))
    one = driver(rules)
    cached_of(one, prompt(length), decoder_start=start)
    assert cached_of(one, prompt(length), decoder_start=start) == max(0, spared)


@pytest.mark.parametrize("common", range(3 * B))
def test_what_differs_is_never_shared(common: int) -> None:
    one = driver()
    cached_of(one, prompt(3 * B))
    other = prompt(3 * B)[:common] + [(t + 1) % 7 for t in prompt(3 * B)[common:]]
    assert cached_of(one, other, decoder_start=3 * B - 1) == common // B * B


def test_equal_blocks_after_different_beginnings_are_two() -> None:
    one = driver()
    end = prompt(B + 1, 3)
    for beginning in ([1] * B, [2] * B):
        assert cached_of(one, beginning + end, decoder_start=2 * B) == 0
    for beginning in ([1] * B, [2] * B):
        assert cached_of(one, beginning + end, decoder_start=2 * B) == 2 * B


@pytest.mark.parametrize("rows", [1, 3, B, 2 * B])
def test_a_prompt_under_way_is_shared_as_far_as_its_steps_are_planned(rows: int) -> None:
    one = driver(max_step_tokens=rows)
    one.add(prompt(4 * B), 1, salt=0)
    for _ in range(2 * B // rows):
        one.plan()
    late = one.add(prompt(4 * B), 1, salt=0, decoder_start=4 * B - 1)
    one.abort(0)  # it stops there, and its steps go on
    one.plan()
    assert one.cached[late] == 2 * B // rows * rows // B * B
    one.drain(depth=1)


@pytest.mark.parametrize("history", [1, 3, 2 * B])
def test_the_past_of_a_hit_comes_with_its_slot(history: int) -> None:
    one = driver(PrefixRules(1, 1, 1, history))
    cached_of(one, prompt(3 * B))
    one.add(prompt(3 * B), 1, salt=0, decoder_start=3 * B - 1)
    plan = one.plan()  # the device compares the tokens
    assert plan is not None
    assert plan.past_position.tolist() == list(range(3 * B - 2))[-history:]
    one.drain()


@pytest.mark.parametrize("new", range(8, 13))
def test_answers_are_cached_too(new: int) -> None:
    one = driver(max_length=64)
    first = one.add(prompt(6), new, salt=0)
    one.drain()
    again = prompt(6) + one.answers[first] + [3]
    written = 6 + new - 1  # the newest token never had a row
    assert cached_of(one, again, decoder_start=len(again) - 1) == written // B * B


def test_salts_part_requests_and_no_key_shares_nothing() -> None:
    one = driver()
    tokens = prompt(2 * B + 1)
    assert cached_of(one, tokens, salt=1, decoder_start=2 * B) == 0
    assert cached_of(one, tokens, salt=2, decoder_start=2 * B) == 0
    assert cached_of(one, tokens, salt=None, decoder_start=2 * B) == 0
    assert cached_of(one, tokens, salt=1, decoder_start=2 * B) == 2 * B


def test_a_request_that_wants_every_row_takes_no_hit_and_leaves_blocks_for_others() -> None:
    one = driver()
    tokens = prompt(2 * B + 1)
    number = one.add(tokens, 2, salt=0, prompt_logits=True)
    one.drain()
    again = one.add(tokens, 2, salt=0, prompt_logits=True)
    one.drain()
    assert (one.cached[number], one.cached[again]) == (0, 0)
    assert cached_of(one, tokens, decoder_start=2 * B) == 2 * B


def test_two_that_arrive_together_compute_alone_and_later_ones_share() -> None:
    one = driver(max_slots=4, max_step_tokens=64)
    tokens = prompt(2 * B + 1)
    pair = [one.add(tokens, 6, salt=0, decoder_start=2 * B) for _ in range(2)]
    one.plan()
    late = one.add(tokens, 6, salt=0, decoder_start=2 * B)
    one.plan()  # nothing is committed yet: what is planned is as good as written
    assert [one.cached[n] for n in (*pair, late)] == [0, 0, 2 * B]
    one.drain(depth=1)


def test_a_resumed_request_finds_its_own_blocks() -> None:
    one = driver(max_slots=2, num_blocks=7, max_step_tokens=16, max_length=28)
    one.add(prompt(2 * B, 1), 12, salt=0)
    late = one.add(prompt(2 * B, 2), 12, salt=0)
    one.drain(depth=1)
    assert late in one.preempted
    assert one.scheduler.stats().hit_tokens >= B


def test_the_oldest_unused_blocks_make_room_ends_of_chains_first() -> None:
    one = driver(num_blocks=4)
    cached_of(one, prompt(2 * B, 0), new=1)
    cached_of(one, prompt(2 * B, 1), new=1)
    assert one.scheduler.stats().cached_blocks == 4
    cached_of(one, prompt(B, 3), new=1)  # one block: the end of the first chain goes
    assert one.scheduler.stats().evictions == 1
    assert cached_of(one, prompt(2 * B, 0)[: B + 1], new=1, decoder_start=B) == B
    assert cached_of(one, prompt(2 * B, 1), new=1, decoder_start=2 * B - 1) in (B, 2 * B - 1)


def test_a_hit_never_counts_a_block_twice_when_room_is_short() -> None:
    one = driver(num_blocks=4, max_length=16)
    cached_of(one, prompt(3 * B), new=1)
    # Its three cached blocks are all that is left but one: they cannot both be shared and be given out.
    one.add([*prompt(3 * B), 1, 2], 2, salt=0, decoder_start=3 * B)
    one.add(prompt(2 * B, 5), 2, salt=0)
    one.drain(depth=1)


def test_unused_blocks_of_a_hit_are_not_room_for_what_follows() -> None:
    one = driver(num_blocks=6, max_length=6 * B)
    cached_of(one, prompt(3 * B), new=1)
    one.add([6], 2)
    one.step()
    late = one.add(prompt(3 * B) + [5] * (3 * B - 1), 1, salt=0, decoder_start=6 * B - 2)
    one.step()
    assert late not in one.cached, "two blocks are left for the three that it needs, and the other's next"
    one.drain()
    assert one.cached[late] == 3 * B


def test_forgotten_blocks_are_not_found_and_users_go_on() -> None:
    one = driver()
    tokens = prompt(3 * B)
    number = one.add(tokens, 9, salt=0)
    one.plan()
    one.scheduler.forget()
    assert cached_of(one, tokens, decoder_start=3 * B - 1) == 0
    assert number in one.finished
    one.scheduler.forget()
    assert one.scheduler.stats().cached_blocks == 0
    with pytest.raises(ValueError, match=r"block 99 must lie in 0 \.\. 15"):
        one.scheduler.forget([99])


def test_counters_add_up() -> None:
    one = driver(PrefixRules(1, 1, 1))
    tokens = prompt(3 * B)
    cached_of(one, tokens)
    spared = cached_of(one, tokens, decoder_start=3 * B - 1)
    stats = one.scheduler.stats()
    assert stats.queried_tokens == 2 * len(tokens)
    assert stats.hit_tokens == 3 * B
    assert stats.hit_tokens - stats.replayed_tokens == spared


def test_what_cannot_be_a_key_or_a_rule_is_refused() -> None:
    scheduler = NativeScheduler(SchedulerLimits(1, 4, B, 8, 16, prefix=NO_REPLAY))
    with pytest.raises(ValueError, match="16 bytes"):
        scheduler.add(SchedulerRequest(0, np.array([1], np.int32), 1, cache_key=b"short"))
    with pytest.raises(ValueError, match="negative"):
        NativeScheduler(SchedulerLimits(1, 4, B, 8, 16, prefix=PrefixRules(0, -1, 0)))


@pytest.mark.parametrize(
    ("length", "digest"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
        (63, "5150d1772f50834a503e069a973fbd7c"),
    ],
)
def test_the_hash_is_siphash(length: int, digest: str) -> None:
    """The reference implementation's published vectors: key 00 01 .. 0f, data 00 01 .. ."""
    low, high = _native.siphash128(bytes(range(16)), bytes(range(length)))
    assert (low.to_bytes(8, "little") + high.to_bytes(8, "little")).hex() == digest


def test_the_simulated_device_tells_prefixes_apart() -> None:
    """A block that holds other tokens, or another key's, is not read back."""
    one = driver()
    assert isinstance(one.device, SimulatedDevice)
    cached_of(one, prompt(B))
    one.device.cells = {place: (key, (*tokens[:-1], 99)) for place, (key, tokens) in one.device.cells.items()}
    with pytest.raises(AssertionError, match="not its own history"):
        cached_of(one, [*prompt(B), 1], decoder_start=B)
