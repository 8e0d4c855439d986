"""Prefix hits through the whole engine, on the fake model: an answer with a hit is the answer without one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from engine_kit import EXACT_REPLAY, Kit, Sizes, expected_greedy, greedy, make_kit, request, run, solo
from fake_model import INFO

from deepinfer_core.api.errors import RequestError
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.engine.request import Request
from deepinfer_core.interfaces.scheduler import PrefixRules, StepPlan

B = 4
SIZES = Sizes(block_size=B, prefix=EXACT_REPLAY)
REACH = INFO.reach


def tokens(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(8, 60), k=length)


_known: dict[str, RequestOutput] = {}


def _alone(one: Request) -> RequestOutput:
    """A request's outcome in an engine of its own; each is run once."""
    one = replace(one, cache_salt=None)
    if repr(one) not in _known:
        _known[repr(one)] = solo(one)
    return _known[repr(one)]


def cached(kit: Kit, one: Request) -> int:
    """Serve a request; check its answer against its solo run; the prompt tokens that were spared."""
    (output,) = run(kit, [one])
    alone = _alone(one)
    assert (output.error, output.outputs, output.prompt_logprobs) == (None, alone.outputs, alone.prompt_logprobs)
    return output.num_cached_tokens


@pytest.mark.parametrize("length", range(1, 5 * B + 3))
def test_the_same_prompt_again_gives_the_same_answer(length: int) -> None:
    """Every residue of block and ratio, and prompts that are whole blocks."""
    kit = make_kit(SIZES)
    one = greedy(tokens(length), max_tokens=9, logprobs=2)
    assert cached(kit, one) == 0
    start = max(0, length - INFO.decoder_rows)
    spared = min(length // B * B - REACH.keys, start - REACH.kept)
    assert cached(kit, one) == max(0, spared)
    kit.assert_idle()


@pytest.mark.parametrize("common", range(4 * B + 1))
def test_a_prompt_that_differs_after_some_tokens_is_its_own(common: int) -> None:
    """A key covers no token that it does not attest."""
    first, second = tokens(5 * B, 1), tokens(5 * B, 1)[:common] + tokens(5 * B, 2)[common:]
    kit = make_kit(SIZES)
    cached(kit, greedy(first, max_tokens=4))
    cached(kit, greedy(second, max_tokens=4))
    cached(kit, greedy(first, max_tokens=4))


@pytest.mark.parametrize("step_tokens", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("overlap", [False, True])
def test_hits_in_chunks_of_any_size(step_tokens: int, overlap: bool) -> None:
    kit = make_kit(replace(SIZES, step_tokens=step_tokens, overlap=overlap))
    for length in (5 * B, 5 * B + 1, 4 * B + 3):
        cached(kit, greedy(tokens(length, 3), max_tokens=6))
    assert cached(kit, greedy(tokens(6 * B, 3), max_tokens=6)) > 0


def test_exact_prefill_replays_the_whole_stack() -> None:
    sizes = replace(SIZES, decoder_rows=0)
    kit = make_kit(sizes)
    prompt = tokens(5 * B)
    for expected in (0, 5 * B - 1 - REACH.logits):
        (output,) = run(kit, [greedy(prompt, max_tokens=5)])
        assert list(output.outputs[0].token_ids) == expected_greedy(prompt, 5, decoder_rows=0)
        assert output.num_cached_tokens == expected


def test_an_answer_is_found_by_the_next_turn() -> None:
    kit = make_kit(SIZES)
    prompt = tokens(9)
    (first,) = run(kit, [greedy(prompt, max_tokens=12, ignore_eos=True)])
    turn = [*prompt, *first.outputs[0].token_ids, 11, 12, 13]
    assert cached(kit, greedy(turn, max_tokens=6)) > len(prompt)


def test_prompt_logprobs_are_those_of_a_cold_run() -> None:
    kit = make_kit(replace(SIZES, step_tokens=3))
    prompt = tokens(5 * B)
    cached(kit, greedy(prompt, max_tokens=3))
    assert cached(kit, greedy(prompt, max_tokens=3, prompt_logprobs=2)) == 0


def test_identical_prompts_that_come_together() -> None:
    kit = make_kit(SIZES)
    one = greedy(tokens(5 * B), max_tokens=8)
    outputs = run(kit, [one] * 4)
    assert {output.outputs for output in outputs} == {solo(one).outputs}
    assert cached(kit, one) > 0


def test_all_answers_of_a_request_may_share() -> None:
    one = request(tokens(5 * B), temperature=1.2, seed=5, n=4, max_tokens=7)
    kit = make_kit(replace(SIZES, slots=2))
    cached(kit, one)
    assert kit.engine.stats().hit_tokens > 0


def test_salts_keep_requests_apart() -> None:
    kit = make_kit(SIZES)
    one = greedy(tokens(5 * B), max_tokens=2)
    assert cached(kit, replace(one, cache_salt="a")) == 0
    assert cached(kit, replace(one, cache_salt="b")) == 0
    assert cached(kit, one) == 0
    assert cached(kit, replace(one, cache_salt="a")) > 0


@pytest.mark.parametrize("salt", ["", "\ud83d", 7])
def test_a_salt_that_is_none_is_refused(salt: Any) -> None:
    kit = make_kit(SIZES)
    (output,) = run(kit, [replace(greedy([9, 9]), cache_salt=salt)])
    assert isinstance(output.error, RequestError)
    assert "cache_salt" in str(output.error)


@pytest.mark.parametrize("seed", range(6))
def test_blocks_that_are_evicted_at_random_change_nothing(seed: int) -> None:
    kit, draw = make_kit(SIZES), random.Random(seed)
    for turn in range(12):
        cut = draw.randrange(B, 6 * B)
        prompt = tokens(cut, 1) + tokens(3, turn)
        cached(kit, greedy(prompt, max_tokens=4))
        kit.scheduler.forget(draw.sample(range(SIZES.blocks), SIZES.blocks // 2))
        kit.scheduler.check()


@pytest.mark.parametrize("length", [B - 1, B, B + 1, 3 * B - 1, 3 * B, 3 * B + 1])
def test_a_preempted_request_that_finds_its_own_blocks(length: int) -> None:
    """Preempted at every fill of its last block; the scheduler runs exactly what no hit spared."""
    blocks = max(7, 2 * -(-length // B) + 1)  # both begin, and cannot both end
    sizes = Sizes(slots=2, blocks=blocks, block_size=B, step_tokens=16, max_length=28, prefix=EXACT_REPLAY)
    kit = make_kit(sizes)
    requests = [greedy(tokens(length, s), max_tokens=28 - length, ignore_eos=True) for s in (1, 2)]
    outputs = run(kit, requests)
    for one, output in zip(requests, outputs, strict=True):
        assert output.outputs == solo(one, replace(sizes, slots=1, blocks=8)).outputs
    assert kit.engine.stats().preemptions > 0
    kit.assert_idle()


def test_bounded_replay_is_named_in_the_output() -> None:
    rows = INFO.decoder_rows
    sizes = replace(SIZES, prefix=PrefixRules(rows, 0, rows, EXACT_REPLAY.history_rows))
    kit = make_kit(sizes, replay="bounded")
    one = greedy(tokens(5 * B), max_tokens=4)
    cold, warm = (run(kit, [one])[0] for _ in range(2))
    assert (cold.replay, cold.num_cached_tokens) == (None, 0)
    assert (warm.replay, warm.num_cached_tokens) == ("bounded", 5 * B - rows)


# ---- the tests above bite: plans that are wrong in one place give another answer ----


def one_row_short(plan: StepPlan) -> StepPlan:
    """A replay that begins a row late: the row is run, but nothing may look at it."""
    late = plan.replay_start + (plan.replay_start > 0)
    return replace(plan, replay_start=late.astype("int32"))


def written_by_all(plan: StepPlan) -> StepPlan:
    """Replayed rows write to shared blocks."""
    return replace(plan, write_start=plan.write_start * 0)


def nothing_written(plan: StepPlan) -> StepPlan:
    """The first block after a hit is taken for shared."""
    return replace(plan, write_start=plan.write_start + B * (plan.write_start > 0).astype("int32"))


def no_past(plan: StepPlan) -> StepPlan:
    """The tokens before a replay are not repeated."""
    return replace(plan, past_token=plan.past_token * 0)


def wrong_block(plan: StepPlan) -> StepPlan:
    """The first two shared blocks change places."""
    index = plan.table_index.copy()
    if (plan.new_slot_cached > 0).any():
        index[plan.table_index == 0], index[plan.table_index == 1] = 1, 0
    return replace(plan, table_index=index)


def served(tamper: Callable[[StepPlan], StepPlan], rules: PrefixRules = EXACT_REPLAY) -> bool:
    """Whether answers with hits come out right when the scheduler is broken."""
    kit = make_kit(replace(SIZES, prefix=rules))
    whole = kit.scheduler.plan
    kit.scheduler.plan = lambda: (plan := whole()) and tamper(plan)  # type: ignore[method-assign]
    right = True
    for length in (5 * B, 5 * B, 6 * B + 1, 5 * B + 2, 6 * B + 1):
        one = greedy(tokens(length, 4), max_tokens=6, ignore_eos=True)
        (output,) = run(kit, [one])
        right &= output.outputs == _alone(one).outputs
    assert kit.engine.stats().hit_tokens > 0
    return right


def test_the_unbroken_scheduler_serves_the_workload_of_the_mutants() -> None:
    assert served(lambda plan: plan)


@pytest.mark.parametrize("mutant", [one_row_short, written_by_all, nothing_written, no_past, wrong_block])
def test_a_broken_hit_changes_an_answer(mutant: Callable[[StepPlan], StepPlan]) -> None:
    assert not served(mutant)


@pytest.mark.parametrize("field", ["key_rows", "kept_rows"])
def test_a_replay_that_is_a_row_too_short_changes_an_answer(field: str) -> None:
    assert not served(lambda plan: plan, replace(EXACT_REPLAY, **{field: getattr(EXACT_REPLAY, field) - 1}))
