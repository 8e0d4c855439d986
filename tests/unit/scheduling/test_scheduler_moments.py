"""Aborts and preemptions at each moment of a life, with drafts, steps in flight and shared blocks: what was held comes
back, neighbours and sharers answer as ever."""

from __future__ import annotations

from itertools import pairwise

import pytest
from scheduler_driver import Driver, expected_answer, limits

from deepinfer_core.interfaces.scheduler import PrefixRules, SegmentKind, StepPlan

B = 4  # the block size
NO_REPLAY = PrefixRules(0, 0, 0)
DEPTHS = (0, 1, 2)
DRAFTS = (0, 1, 3, 5)
CACHES = pytest.mark.parametrize("rules", [None, NO_REPLAY, PrefixRules(2, 3, 4)], ids=["cold", "cached", "replayed"])
LIFE = 12  # steps: five chunks of prefill, seven decodes
SHARED = [1, 2, 3, 4, 5, 6, 0, 1, 3, 5, 0, 2, 4, 6, 1, 3, 5, 0]


@CACHES
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("moment", range(LIFE))
def test_an_abort_at_any_step_harms_nobody_who_shares(
    moment: int, drafts: int, depth: int, rules: PrefixRules | None
) -> None:
    one = Driver(limits(max_step_tokens=5, max_drafts=drafts, num_blocks=24, prefix=rules))
    neighbour = one.add(2, 10)
    victim = one.add(SHARED, 7, salt=0, decoder_start=17)
    for _ in range(moment):
        one.step(depth)
    sharer = one.add([*SHARED[:16], 6, 6], 5, salt=0, decoder_start=17)
    one.plan()  # it takes what the victim has written by now, or is about to write
    one.abort(victim)
    one.drain(depth)
    assert one.finished[neighbour] is not None
    assert one.finished[sharer] is not None
    assert moment < 7 or rules is None or one.cached[sharer] > B
    one.scheduler.forget()
    assert one.scheduler.stats().free_blocks == 24


def preempted_at(one: Driver, victim: int, depth: int) -> list[int]:
    """Serve to the end; how many tokens the victim had said at each preemption, -1 in the midst of its prompt."""
    moments, inside = [], False
    while one.step(depth):
        moments += [-1 if inside else len(one.answers[victim])] * (one.preempted.count(victim) - len(moments))
        if one.in_flight:
            newest = one.in_flight[-1][0]
            if victim in newest.request:
                inside = newest.kind[newest.request == victim][0] == SegmentKind.PREFILL
    one.check_answers()
    one.check_idle()
    return moments


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("drafts", DRAFTS)
def test_a_preemption_at_any_step_changes_no_answer(drafts: int, depth: int) -> None:
    """Older requests grow into their next blocks at every moment of the victim's life, and no block is left."""
    moments = set()
    for size, blocks, rows in ((1, 22, 32), (1, 23, 4), (2, 12, 6), (B, 7, 32)):
        for older in range(1, 14):
            one = Driver(limits(3, blocks, size, rows, max_length=22, max_drafts=drafts, prefix=NO_REPLAY))
            one.add(older, 22 - older)
            one.add(older % 3 + 1, 16)
            victim = one.add(SHARED[: B + 1], 17, salt=0, decoder_start=B)
            moments |= set(preempted_at(one, victim, depth))
    assert moments >= {0, 1, 2}
    assert depth == 0 or -1 in moments, "no preemption in the midst of a prompt"


def prefilled_rows(plan: StepPlan, request: int) -> int:
    return int(plan.num_rows[(plan.request == request) & (plan.kind != SegmentKind.DECODE)].sum())


@pytest.mark.parametrize("length", [2 * B - 1, 2 * B, 2 * B + 1])
@pytest.mark.parametrize("rules", [NO_REPLAY, PrefixRules(1, 1, 3)])
def test_a_resumed_request_runs_what_no_hit_spares_and_nothing_else(length: int, rules: PrefixRules) -> None:
    one = Driver(limits(2, 12, B, 3, max_length=28, prefix=rules))
    one.add([6] * length, 28 - length)
    victim = one.add(SHARED[:length], 28 - length, salt=0, decoder_start=length - 1)
    ran, wanted = [], []  # rows of the victim's prefill in each of its stays, and how many there should be
    while (plan := one.plan()) is not None:
        for request, spared in zip(plan.new_slot_requests, plan.new_slot_cached, strict=True):
            if request == victim:
                ran.append(0)
                wanted.append(length + len(one.answers[victim]) - int(spared))
        if ran:
            ran[-1] += prefilled_rows(plan, victim)
        one.commit()
    one.check_answers()
    assert len(ran) > 1, "the victim was never preempted"
    assert ran == wanted
    assert min(wanted[1:]) < length, "no hit spared anything"


@pytest.mark.parametrize("depth", DEPTHS)
def test_cached_blocks_are_room_for_a_request_that_fills_the_pool(depth: int) -> None:
    one = Driver(limits(num_blocks=12, max_length=48, prefix=NO_REPLAY))
    for begin in (1, 2, 3):
        one.add([begin] * 16, 1, salt=0)
        one.drain(depth)
    assert one.scheduler.stats().free_blocks == 0
    one.add([5] * 40, 8, salt=0)
    one.add([1] * 16 + [4] * 24, 8, salt=0, decoder_start=39)
    one.drain(depth)
    assert one.cached[4] == 0, "what the first of the two needed was given up"


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("drafts", DRAFTS)
def test_two_that_share_and_together_exceed_the_pool_both_finish(depth: int, drafts: int) -> None:
    one = Driver(limits(num_blocks=12, max_step_tokens=64, max_drafts=drafts, prefix=NO_REPLAY))
    for _ in range(2):
        one.add([*SHARED, 2, 3], 24, salt=0, decoder_start=19)
        one.plan()
    one.drain(depth)
    assert set(one.preempted) == {1}
    assert one.scheduler.stats().preemptions <= 3
    assert one.cached[1] == 20 - 20 % B - 1, "all of the prompt is shared but its last token's row"


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("drafts", DRAFTS)
def test_blocks_scattered_over_the_pool_serve_drafts_and_hits(drafts: int, depth: int) -> None:
    """Every other block is free before anything else is, and a hit's blocks lie apart from those that follow."""
    one = Driver(limits(16, 32, B, 64, max_length=40, max_drafts=drafts, prefix=NO_REPLAY))
    for number in range(16):
        one.add([number % 7], 1 if number % 2 else 2, stop_tokens=())
    one.step()
    assert one.scheduler.stats().free_blocks == 24
    first = one.add(SHARED[:14], 9, salt=0)
    plan = one.plan()
    assert plan is not None
    blocks = plan.table_block[plan.table_slot == plan.slot[plan.request == first]].tolist()
    assert len(blocks) == 4
    assert all(abs(a - b) > 1 for a, b in pairwise(blocks))
    one.drain(depth)
    again = one.add(SHARED[:14], 20, salt=0, decoder_start=13)
    one.drain(depth)
    assert one.cached[again] == 12


def test_one_that_waits_for_room_enters_when_another_ends() -> None:
    one = Driver(limits(num_blocks=11, max_step_tokens=64, prefix=NO_REPLAY))
    one.add([*SHARED, 2], 12, salt=0)
    blocker = one.add([6], 12)
    one.step()
    waiting = one.add([*SHARED[:16], *[5] * 13], 1, salt=0, decoder_start=28)
    one.step()
    assert waiting not in one.cached
    one.abort(blocker)
    one.step()
    assert one.cached[waiting] == 16
    one.drain()


def test_one_that_waits_for_room_enters_when_it_can_share_another_block() -> None:
    one = Driver(limits(num_blocks=10, max_step_tokens=64, prefix=NO_REPLAY))
    beginning = [*SHARED, 2]
    one.add(beginning, 12, salt=0)
    beginning += expected_answer(one.requests[0], 64)[0][:1]
    one.plan()
    one.plan()
    one.commit()
    one.plan()
    assert one.scheduler.stats().used_blocks == 6, "the fifth block is full, and known to be with the next commit"
    waiting = one.add(beginning + [5] * 9, 1, salt=0, decoder_start=28)
    one.plan()
    assert waiting not in one.cached
    one.commit()
    one.plan()
    assert one.cached[waiting] == 20
    one.drain()
