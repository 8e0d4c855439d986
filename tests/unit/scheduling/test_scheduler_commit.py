"""How results change requests: stops, lengths, drafts, and results that do not fit."""

import numpy as np
import pytest
from scheduler_driver import Driver, limits

from deepinfer_core.interfaces.scheduler import Committed, FinishCode, SchedulerRequest
from deepinfer_core.scheduling.native import NativeScheduler

STOP = 99


def commit_run(tokens: list[int], max_new_tokens: int, min_new_tokens: int = 0, prompt: int = 4) -> Committed:
    """Commit `tokens` in one run: the first from the prefill, the others from one decode with drafts."""
    scheduler = NativeScheduler(limits(max_drafts=8))
    scheduler.add(SchedulerRequest(0, np.arange(prompt, dtype=np.int32), max_new_tokens, min_new_tokens, (STOP,)))
    results = []
    for run in (tokens[:1], tokens[1:]):
        plan = scheduler.plan()
        assert plan is not None
        row = np.full((1, 9), -1, np.int32)
        row[0, : len(run)] = run
        count = min(len(run), 1 + int(plan.drafts[0]))
        results.append(scheduler.commit(plan.step, row, np.array([count], np.int32)))
        scheduler.check()
    return Committed(results[1].request, results[0].accepted + results[1].accepted, results[1].finish)


@pytest.mark.parametrize(
    ("tokens", "max_new_tokens", "min_new_tokens", "accepted", "code"),
    [
        ([10, 11, STOP, 20, 21, 22], 5, 0, 3, FinishCode.STOP),
        ([10, 11, 20, 21, STOP, 22], 5, 0, 5, FinishCode.STOP),
        ([10, 11, 20, 21, 22, STOP], 5, 0, 5, FinishCode.LENGTH),
        ([10, 11, 20, 21, 22, 23], 20, 0, 6, FinishCode.NONE),
        ([10, STOP, 20, STOP, 21], 20, 2, 4, FinishCode.STOP),
        ([10, STOP, 20, 21], 20, 1, 2, FinishCode.STOP),
        ([STOP, STOP, STOP, STOP], 4, 4, 4, FinishCode.LENGTH),
        ([10, 11], 2, 0, 2, FinishCode.LENGTH),
    ],
)
def test_the_first_stop_at_or_before_the_limit_ends_a_run(
    tokens: list[int], max_new_tokens: int, min_new_tokens: int, accepted: int, code: FinishCode
) -> None:
    result = commit_run(tokens, max_new_tokens, min_new_tokens)
    assert (result.accepted.tolist(), result.finish.tolist()) == ([accepted], [code])


def test_a_full_context_ends_a_request_by_length() -> None:
    driver = Driver(limits(max_length=9))
    driver.add(5, 100)
    driver.drain()
    assert len(driver.answers[0]) == 4
    assert driver.finished[0] == FinishCode.LENGTH


@pytest.mark.parametrize("accepted", range(4))
def test_blocks_reserved_for_rejected_drafts_come_back(accepted: int) -> None:
    scheduler = NativeScheduler(limits(max_drafts=3, block_size=1, num_blocks=32))
    scheduler.add(SchedulerRequest(0, np.array([1, 2], np.int32), 20))
    used = []
    for count in (1, 1 + accepted):
        plan = scheduler.plan()
        assert plan is not None
        used.append(scheduler.stats().used_blocks)
        scheduler.commit(plan.step, np.ones((1, 4), np.int32), np.array([count], np.int32))
        scheduler.check()
    assert used == [2, 2 + 4]
    assert scheduler.stats().used_blocks == 2 + 1 + accepted


def test_drafts_can_be_set_for_one_request_and_stay_within_the_step() -> None:
    driver = Driver(limits(max_drafts=5, max_step_tokens=7))
    for _ in range(3):
        driver.add(2, 12)
    driver.scheduler.set_drafts(1, 0)
    driver.step()
    plan = driver.plan()
    assert plan is not None
    assert plan.drafts.tolist() == [4, 0, 0], "each decode has a row before the earliest has its drafts"
    driver.drain()


@pytest.mark.parametrize("room", range(1, 6))
@pytest.mark.parametrize("by_context", [True, False])
@pytest.mark.parametrize("depth", [0, 1])
def test_drafts_never_go_beyond_the_end(room: int, by_context: bool, depth: int) -> None:
    driver = Driver(limits(max_drafts=4, max_length=10 + room if by_context else 64))
    driver.add(10, 50 if by_context else room)
    driver.drain(depth)
    assert len(driver.answers[0]) == room


def test_drafts_outside_the_limits_are_refused() -> None:
    scheduler = NativeScheduler(limits(max_drafts=2))
    with pytest.raises(ValueError, match=r"0 \.\. 2"):
        scheduler.set_drafts(0, 3)


def test_steps_are_committed_in_order_and_once() -> None:
    driver = Driver(limits())
    driver.add(3, 9)
    first, second = driver.plan(), driver.plan()
    assert first is not None
    assert second is not None
    tokens, counts = np.ones((1, 1), np.int32), np.ones(1, np.int32)
    with pytest.raises(ValueError, match="the next is 0"):
        driver.scheduler.commit(second.step, tokens, counts)
    driver.scheduler.commit(first.step, tokens, counts)
    with pytest.raises(ValueError, match="step 0"):
        driver.scheduler.commit(first.step, tokens, counts)
    driver.scheduler.commit(second.step, tokens, counts)
    with pytest.raises(ValueError, match="no step is in flight"):
        driver.scheduler.commit(2, tokens, counts)


@pytest.mark.parametrize(
    ("tokens", "counts"),
    [
        (np.ones((1, 3), np.int32), np.array([0], np.int32)),
        (np.ones((1, 3), np.int32), np.array([2], np.int32)),
        (np.ones((1, 2), np.int32), np.array([1], np.int32)),
        (np.ones((2, 3), np.int32), np.array([1, 1], np.int32)),
        (np.ones((0, 3), np.int32), np.array([], np.int32)),
    ],
)
def test_results_that_do_not_fit_the_step_change_nothing(tokens: np.ndarray, counts: np.ndarray) -> None:
    driver = Driver(limits(max_drafts=2))
    driver.add(3, 9)
    driver.plan()
    with pytest.raises(ValueError, match="0"):
        driver.scheduler.commit(0, tokens, counts)
    driver.scheduler.check()
    driver.commit()
    driver.drain()
