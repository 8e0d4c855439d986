"""The simulated device and the plan laws bite: a plan that is wrong in one place does not get past them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scheduler_driver import Driver, Tamper, limits

from deepinfer_core.interfaces.scheduler import SegmentKind, StepPlan


def busy_driver(tamper: Tamper | None = None) -> Driver:
    """Chunked prefills, drafts, a preemption and slots that are used twice."""
    driver = Driver(limits(max_slots=3, num_blocks=9, max_drafts=2, max_step_tokens=7), tamper)
    for prompt in (9, 6, 11, 3, 8):
        driver.add(prompt, 12)
    return driver


def blocks_swapped(plan: StepPlan) -> StepPlan:
    return replace(plan, table_block=(plan.table_block + 1) % 9)


def last_table_entry_lost(plan: StepPlan) -> StepPlan:
    return replace(
        plan, table_slot=plan.table_slot[:-1], table_index=plan.table_index[:-1], table_block=plan.table_block[:-1]
    )


def slots_not_reset(plan: StepPlan) -> StepPlan:
    late = plan.step > 6
    return replace(
        plan,
        new_slots=plan.new_slots[:0] if late else plan.new_slots,
        new_slot_requests=plan.new_slot_requests[:0] if late else plan.new_slot_requests,
        new_slot_cached=plan.new_slot_cached[:0] if late else plan.new_slot_cached,
    )


def chunks_one_late(plan: StepPlan) -> StepPlan:
    return replace(plan, first_position=plan.first_position + (plan.kind != SegmentKind.DECODE))


def decodes_not_bounded(plan: StepPlan) -> StepPlan:
    return replace(plan, first_position=plan.first_position - 2 * (plan.kind == SegmentKind.DECODE))


def slots_exchanged(plan: StepPlan) -> StepPlan:
    return replace(plan, slot=np.roll(plan.slot, 1))


def tokens_shifted(plan: StepPlan) -> StepPlan:
    return replace(plan, tokens=np.where(plan.tokens < 0, plan.tokens, (plan.tokens + 1) % 7).astype(np.int32))


MUTANTS = [
    blocks_swapped,
    last_table_entry_lost,
    slots_not_reset,
    chunks_one_late,
    decodes_not_bounded,
    slots_exchanged,
    tokens_shifted,
]


def test_the_workload_itself_passes() -> None:
    driver = busy_driver()
    driver.drain(depth=1)
    assert driver.preempted
    assert any(len(driver.answers[n]) > 5 for n in driver.answers)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_tampered_plan_is_caught(mutant: Callable[[StepPlan], StepPlan]) -> None:
    driver = busy_driver(mutant)
    with pytest.raises((AssertionError, KeyError)):
        driver.drain(depth=1)
