"""What a step holds: chunks, order, kept and logit rows, slots."""

import numpy as np
import pytest
from scheduler_driver import Driver, limits

from deepinfer_core.interfaces.scheduler import FinishCode, SegmentKind, StepPlan


def plan_of(driver: Driver) -> StepPlan:
    plan = driver.plan()
    assert plan is not None
    return plan


def test_nothing_to_do_gives_no_plan() -> None:
    assert Driver(limits()).plan() is None


def test_a_long_prompt_is_prefilled_in_chunks_of_the_step_budget() -> None:
    driver = Driver(limits(max_step_tokens=4))
    driver.add(10, 1)
    plans = [plan_of(driver) for _ in range(3)]
    assert [p.first_position.tolist() for p in plans] == [[0], [4], [8]]
    assert [p.num_rows.tolist() for p in plans] == [[4], [4], [2]]
    assert [p.kind.tolist() for p in plans] == [
        [SegmentKind.PREFILL],
        [SegmentKind.PREFILL],
        [SegmentKind.PREFILL_LAST],
    ]
    assert np.concatenate([p.tokens for p in plans]).tolist() == driver.requests[0].prompt.tolist()


def test_decodes_come_before_prefills_and_both_share_a_step() -> None:
    driver = Driver(limits(max_step_tokens=4))
    driver.add(3, 8)
    driver.step()
    driver.add(9, 8)
    plan = plan_of(driver)
    assert plan.request.tolist() == [0, 1]
    assert plan.kind.tolist() == [SegmentKind.DECODE, SegmentKind.PREFILL]
    assert plan.num_rows.tolist() == [1, 3]
    assert plan.tokens.tolist() == [-1, *driver.requests[1].prompt[:3]]


def test_a_decode_is_planned_while_the_token_before_is_in_flight() -> None:
    driver = Driver(limits())
    driver.add(5, 3)
    plans = [plan_of(driver) for _ in range(3)]
    assert [int(p.first_position[0]) for p in plans] == [0, 5, 6]
    assert driver.plan() is None, "three tokens are in flight and no more are wanted"


def test_prefills_under_way_come_before_newcomers_in_order_of_arrival() -> None:
    driver = Driver(limits(max_step_tokens=6))
    for prompt in (8, 7, 2):
        driver.add(prompt, 1)
    plans = [plan_of(driver) for _ in range(3)]
    assert [p.request.tolist() for p in plans] == [[0], [0, 1], [1, 2]]
    assert [p.num_rows.tolist() for p in plans] == [[6], [2, 4], [3, 2]]


def test_a_later_request_does_not_overtake_one_that_waits_for_blocks() -> None:
    driver = Driver(limits(num_blocks=4, max_step_tokens=64))
    driver.add(9, 2)
    driver.add(12, 2)
    driver.add(1, 2)
    assert plan_of(driver).request.tolist() == [0]
    driver.drain()


def test_one_spare_block_for_each_running_request_is_left_at_admission() -> None:
    driver = Driver(limits(num_blocks=4, max_step_tokens=64))
    for prompt in (4, 4, 4):
        driver.add(prompt, 2)
    assert plan_of(driver).request.tolist() == [0, 1], "the third would leave one block for two running requests"


def test_requests_wait_for_a_slot() -> None:
    driver = Driver(limits(max_slots=2))
    for _ in range(3):
        driver.add(2, 2)
    assert plan_of(driver).request.tolist() == [0, 1]
    assert driver.scheduler.stats().waiting == 1
    driver.drain()


def test_each_slot_is_announced_once_and_with_its_blocks() -> None:
    driver = Driver(limits(max_step_tokens=64))
    driver.add(6, 2)
    driver.add(4, 2)
    plan = plan_of(driver)
    assert plan.new_slots.tolist() == plan.slot.tolist()
    assert plan.new_slot_requests.tolist() == [0, 1]
    assert plan.table_slot.tolist() == [plan.slot[0], plan.slot[0], plan.slot[1]]
    assert plan.table_index.tolist() == [0, 1, 0]
    assert plan_of(driver).new_slots.tolist() == []


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 11, 32])
def test_kept_rows_start_at_decoder_start_whatever_the_chunks(chunk: int) -> None:
    driver = Driver(limits(max_step_tokens=chunk))
    driver.add(11, 1, decoder_start=6)
    kept: list[int] = []
    while not driver.finished:
        plan = plan_of(driver)
        kept += (plan.first_position[0] + plan.offset[plan.kept]).tolist()
        driver.commit()
    assert kept == [6, 7, 8, 9, 10]


def test_only_the_sampled_row_has_logits() -> None:
    driver = Driver(limits(max_step_tokens=8))
    driver.add(5, 4, decoder_start=2)
    first, second = plan_of(driver), plan_of(driver)
    assert (first.kept.tolist(), first.logit_rows.tolist(), first.sample_start.tolist()) == ([2, 3, 4], [2], [0])
    assert (second.kept.tolist(), second.logit_rows.tolist(), second.sample_start.tolist()) == ([0], [0], [0])


def test_prompt_logits_come_for_every_kept_row_of_every_chunk() -> None:
    driver = Driver(limits(max_step_tokens=3))
    driver.add(5, 4, prompt_logits=True)
    first, second = plan_of(driver), plan_of(driver)
    assert (first.logit_rows.tolist(), first.sample_start.tolist()) == ([0, 1, 2], [-1])
    assert (second.logit_rows.tolist(), second.sample_start.tolist()) == ([0, 1], [1])


def test_a_request_for_no_tokens_runs_its_prompt_and_ends() -> None:
    driver = Driver(limits(max_step_tokens=3))
    driver.add(5, 0, prompt_logits=True)
    driver.drain(depth=1)
    assert driver.answers[0] == []
    assert driver.finished[0] == FinishCode.LENGTH


def test_the_arrays_outlive_plan_and_scheduler() -> None:
    driver = Driver(limits())
    driver.add(4, 2)
    tokens = plan_of(driver).tokens
    expected = driver.requests[0].prompt.tolist()
    del driver
    assert tokens.tolist() == expected
