"""What is refused when it is added, and what may wait."""

import numpy as np
import pytest
from scheduler_driver import Driver, limits

from deepinfer_core.api.errors import PromptTooLong, RequestError, RequestTooLarge
from deepinfer_core.interfaces.scheduler import SchedulerLimits, SchedulerRequest
from deepinfer_core.scheduling.native import NativeScheduler


def test_a_request_that_fills_the_pool_exactly_runs() -> None:
    driver = Driver(limits(num_blocks=12, max_length=100))
    driver.add(40, 8)
    driver.drain()


def test_a_request_one_block_larger_than_the_pool_is_refused_with_both_numbers() -> None:
    driver = Driver(limits(num_blocks=12, max_length=100))
    with pytest.raises(RequestTooLarge, match=r"need 13 cache blocks .* there are 12"):
        driver.add(40, 9)
    driver.check_idle()


@pytest.mark.parametrize("asked", [9, 2**40, 2**63 - 1])
def test_the_context_bounds_what_a_request_may_need(asked: int) -> None:
    driver = Driver(limits(num_blocks=12, max_length=48))
    driver.add(40, asked)
    driver.drain()
    assert len(driver.answers[0]) == 8


def test_a_prompt_that_leaves_no_room_for_a_token_is_refused() -> None:
    driver = Driver(limits(max_length=10))
    with pytest.raises(PromptTooLong, match="10 tokens and the context 10"):
        driver.add(10, 1)
    with pytest.raises(PromptTooLong):
        driver.add(11, 0)
    driver.add(10, 0)
    driver.add(9, 1)
    driver.drain()


@pytest.mark.parametrize(("prompt", "changes"), [([], {}), ([1, -1], {}), ([1], {"max_new_tokens": -1})])
def test_a_request_that_makes_no_sense_is_refused(prompt: list[int], changes: dict[str, int]) -> None:
    driver = Driver(limits())
    with pytest.raises(RequestError):
        driver.add(prompt, **{"max_new_tokens": 1, **changes})
    driver.check_idle()


def test_a_handle_is_not_scheduled_twice() -> None:
    scheduler = NativeScheduler(limits())
    request = SchedulerRequest(7, np.array([1], np.int32), 1)
    scheduler.add(request)
    with pytest.raises(ValueError, match="request 7"):
        scheduler.add(request)


def test_decoder_start_lies_within_the_prompt() -> None:
    for start in (-1, 3):
        with pytest.raises(ValueError, match="decoder_start"):
            Driver(limits()).add(3, 1, decoder_start=start)


def test_tokens_of_another_type_are_not_converted_in_silence() -> None:
    scheduler = NativeScheduler(limits())
    for dtype in (np.int64, np.float32):
        with pytest.raises(TypeError):
            scheduler.add(SchedulerRequest(0, np.array([1], dtype), 1))


@pytest.mark.parametrize("name", ["max_slots", "num_blocks", "block_size", "max_step_tokens", "max_length"])
def test_a_limit_of_zero_is_refused(name: str) -> None:
    sizes = {"max_slots": 1, "num_blocks": 1, "block_size": 1, "max_step_tokens": 1, "max_length": 1, name: 0}
    with pytest.raises(ValueError, match=f"{name} = 0"):
        NativeScheduler(SchedulerLimits(**sizes))
