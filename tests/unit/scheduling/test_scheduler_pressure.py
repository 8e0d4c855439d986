"""Too few blocks for everybody: who gives way, and that all finish with the answers that they would have had anyway."""

import pytest
from scheduler_driver import Driver, limits

DEPTHS = (0, 1, 2)
DRAFTS = (0, 1, 3, 5)


@pytest.mark.parametrize("depth", DEPTHS)
def test_two_requests_that_together_exceed_the_pool_both_finish(depth: int) -> None:
    driver = Driver(limits(num_blocks=12, max_step_tokens=64))
    driver.add(20, 24)
    driver.add(20, 24)
    driver.drain(depth)
    assert set(driver.preempted) == {1}
    assert driver.scheduler.stats().preemptions == len(driver.preempted) <= 3


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("drafts", DRAFTS)
def test_a_pool_for_one_and_a_half_requests_serves_many(depth: int, drafts: int) -> None:
    driver = Driver(limits(num_blocks=9, max_drafts=drafts, max_slots=8))
    for _ in range(6):
        driver.add(6, 18)
    driver.drain(depth)
    assert list(driver.finished) == sorted(driver.finished), "equal requests end in order of arrival"


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("drafts", DRAFTS)
@pytest.mark.parametrize("length", [3, 4, 5])
def test_preemption_around_a_block_boundary_changes_no_answer(depth: int, drafts: int, length: int) -> None:
    driver = Driver(limits(num_blocks=8, max_drafts=drafts, max_step_tokens=32))
    for extra in range(3):
        driver.add(length + extra, 20)
    driver.drain(depth)
    assert driver.preempted


def test_the_latest_arrival_gives_way() -> None:
    driver = Driver(limits(num_blocks=9, max_step_tokens=64))
    for _ in range(3):
        driver.add(8, 8)
    for _ in range(2):
        driver.step()
    assert driver.scheduler.stats().running == 3
    while not driver.preempted:
        driver.step()
    assert driver.preempted == [2]
    assert driver.scheduler.stats().waiting == 1
    driver.drain()


def test_a_preempted_request_prefills_its_prompt_and_all_that_it_had_committed() -> None:
    driver = Driver(limits(num_blocks=6, max_step_tokens=64))
    driver.add(8, 14)
    driver.add(8, 14, decoder_start=5)
    while not driver.preempted:
        driver.step()
    had = len(driver.answers[1])
    assert had > 0
    plan = driver.plan()
    while plan is None or 1 not in plan.new_slot_requests:
        driver.commit()
        plan = driver.plan()
    segment = plan.request.tolist().index(1)
    assert plan.first_position[segment] == 0
    assert plan.num_rows[segment] == 8 + had
    assert plan.kept_first[segment] == 5
    driver.drain()


def test_results_in_flight_of_a_preempted_request_are_dropped_and_had_again() -> None:
    driver = Driver(limits(num_blocks=6, max_step_tokens=64))
    driver.add(8, 14)
    driver.add(8, 14)
    while not driver.scheduler.stats().preemptions:
        while len(driver.in_flight) > 1:
            driver.commit()
        driver.plan()
    before = len(driver.answers[1])
    assert any(1 in plan.request for plan, _ in driver.in_flight)
    while driver.in_flight:
        driver.commit()
    assert len(driver.answers[1]) == before
    driver.drain(depth=1)


def test_a_preemption_is_reported_even_when_its_plan_stayed_empty() -> None:
    driver = Driver(limits(num_blocks=6, max_step_tokens=64))
    driver.add(8, 14)
    driver.add(8, 14)
    while driver.plan() is not None:
        while len(driver.in_flight) > 1:
            driver.commit()
    assert driver.scheduler.stats().preemptions == 1
    assert driver.preempted == []
    driver.drain(depth=1)
    assert driver.preempted == [1] * driver.scheduler.stats().preemptions


def test_drafts_take_free_blocks_and_preempt_nobody() -> None:
    driver = Driver(limits(num_blocks=4, max_drafts=5, max_step_tokens=64))
    driver.add(4, 4)
    driver.add(4, 4)
    driver.drain()
    assert driver.preempted == []


@pytest.mark.parametrize("depth", DEPTHS)
def test_fewer_rows_than_running_requests_serves_them_in_turn(depth: int) -> None:
    driver = Driver(limits(max_step_tokens=2, max_slots=4, max_drafts=3, num_blocks=32))
    for _ in range(5):
        driver.add(3, 7)
    driver.drain(depth)
