"""Ending a request early, at any moment: everything comes back, and its neighbours do not notice."""

import pytest
from scheduler_driver import Driver, limits

STEPS_OF_A_LIFE = 12  # five chunks of prefill, seven decodes


def long_prompt_and_neighbour(drafts: int) -> Driver:
    driver = Driver(limits(max_step_tokens=5, max_drafts=drafts))
    driver.add(2, 10)
    driver.add(18, 7)
    return driver


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("moment", range(STEPS_OF_A_LIFE))
def test_an_abort_at_any_step_returns_everything(moment: int, drafts: int, depth: int) -> None:
    driver = long_prompt_and_neighbour(drafts)
    for _ in range(moment):
        driver.step(depth)
    driver.abort(1)
    driver.drain(depth)
    assert driver.finished[0] is not None


def test_an_abort_while_waiting_leaves_the_others_in_order() -> None:
    driver = Driver(limits(max_slots=1))
    for _ in range(4):
        driver.add(3, 2)
    driver.step()
    driver.abort(2)
    driver.drain()
    assert list(driver.finished) == [2, 0, 1, 3]


def test_an_abort_after_a_preemption_before_its_next_turn() -> None:
    driver = Driver(limits(num_blocks=6, max_step_tokens=64))
    driver.add(8, 14)
    driver.add(8, 14)
    while not driver.preempted:
        driver.step(depth=1)
    driver.abort(1)
    driver.drain(depth=1)


def test_slot_and_blocks_stay_taken_until_the_last_step_in_flight_is_committed() -> None:
    driver = Driver(limits(max_slots=1, num_blocks=4))
    driver.add(3, 9)
    driver.plan()
    driver.plan()
    driver.abort(0)
    for _ in range(2):
        stats = driver.scheduler.stats()
        assert (stats.running, stats.used_blocks, stats.free_slots) == (0, 1, 0)
        driver.commit()
    assert driver.answers[0] == []
    driver.check_idle()


def test_ending_twice_or_late_does_nothing() -> None:
    driver = Driver(limits())
    driver.add(3, 1)
    driver.drain()
    driver.scheduler.finish(0)
    driver.scheduler.finish(12345)
    driver.check_idle()
