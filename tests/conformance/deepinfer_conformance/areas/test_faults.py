"""Faults: a kernel that raises, memory that runs out, numbers that are none and work that never ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from deepinfer_conformance.laws.engine import TINY, prompts, small_options
from deepinfer_conformance.laws.faults import at_call, faulty
from deepinfer_conformance.laws.watchdog import Hung, Outcome, within
from deepinfer_conformance.subject import Subject
from deepinfer_core import LLM, SamplingParams
from deepinfer_core.api.errors import DeepInferError, DeviceError, GenerationError
from deepinfer_core.interfaces.ops import Kernel

PARAMS = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in (2, 3, 20, 30)]
BLINK = 0.05  # seconds: long enough for a thread to have been scheduled


class Fault(Exception):
    """What the tests raise on the device."""


def kind(error: BaseException) -> str:
    return type(error).__name__


# --- the queue ---------------------------------------------------------------------------------------------------


def test_work_that_never_ends_is_seen_and_holds_up_nobody_else(subject: Subject) -> None:
    """While a function hangs `submit` comes back and `done` says no, for a watchdog to see. Then `wait` goes on."""
    queue, gate = subject.device.queue(), threading.Event()
    try:
        event = within("submit, while a function hangs,", lambda: queue.submit(gate.wait), seconds=5)
        waiting = Outcome(event.wait)
        assert waiting.pending(BLINK)
        assert not event.done()
        with pytest.raises(Hung, match="the device"):
            within("the device", event.wait, seconds=BLINK)
        assert subject.run(lambda: 7) == 7
    finally:
        gate.set()
    assert waiting.get("wait, after the function ended,") is True
    assert event.done()
    within("closing the queue", queue.close)


@pytest.mark.level("smoke")
@pytest.mark.parametrize("error", [Fault("a kernel"), MemoryError("full"), KeyboardInterrupt()], ids=kind)
def test_what_a_function_raises_is_kept_and_the_queue_goes_on(subject: Subject, error: BaseException) -> None:
    """Every time that somebody waits, and for what was submitted behind it."""

    def fail() -> None:
        raise error

    failed, after = subject.queue.submit(fail), subject.queue.submit(lambda: "after")
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            within("wait for a failed function", failed.wait)
        assert caught.value is error
    assert failed.done()
    assert within("wait for the next function", after.wait) == "after"


def test_a_device_computes_on_after_a_failed_function(subject: Subject) -> None:
    """One that had launched kernels before it failed."""
    x, weight = torch.ones(3, 64), torch.full((64,), 2.0)
    given = [one.to(subject.torch_device) for one in (x, weight)]

    def fail() -> None:
        subject.ops.rms_norm(given[0], given[1], 1e-6)
        raise Fault

    with pytest.raises(Fault):
        within("a function that fails", lambda: subject.run(fail))
    got = subject.run(lambda: subject.ops.rms_norm(given[0], given[1], 1e-6))
    torch.testing.assert_close(got.cpu(), torch.full((3, 64), 2.0), atol=1e-4, rtol=1e-4)


# --- the engine --------------------------------------------------------------------------------------------------


@TINY
@pytest.mark.parametrize("error", [Fault("the kernel broke"), MemoryError("no memory is left")], ids=kind)
def test_a_failing_kernel_is_a_device_error_and_finished_answers_are_kept(
    subject: Subject, llm: Callable[..., LLM], tiny: Path, dtype: str, error: Exception
) -> None:
    """`lm_head` is called once a step: by its sixth call the first two requests have ended."""
    wanted = llm(**small_options(subject)).generate(prompts(4), PARAMS)
    with (
        faulty(subject, "lm_head", at_call(6, error)) as broken,
        broken.llm(str(tiny), dtype=dtype, **small_options(subject)) as engine,
    ):
        outputs = engine.generate(prompts(4), PARAMS)
        assert [output.outputs for output in outputs[:2]] == [output.outputs for output in wanted[:2]]
        for output in outputs[2:]:
            assert isinstance(output.error, DeviceError)
            assert str(error) in str(output.error)
            assert output.outputs == ()
        with pytest.raises(DeviceError):
            engine.engine.add(engine_request())


@TINY
def test_a_new_engine_answers_after_one_has_failed(
    subject: Subject, llm: Callable[..., LLM], tiny: Path, dtype: str
) -> None:
    wanted = llm(**small_options(subject)).generate(prompts(2), PARAMS[:2])
    with faulty(subject, "rms_norm", at_call(0, Fault("at once"))) as broken:
        dead = broken.llm(str(tiny), dtype=dtype, **small_options(subject))
        assert all(isinstance(output.error, DeviceError) for output in dead.generate(prompts(2), PARAMS[:2]))
        dead.close()
        dead.close()
    again = llm(**small_options(subject)).generate(prompts(2), PARAMS[:2])
    assert [output.outputs for output in again] == [output.outputs for output in wanted]


@TINY
def test_numbers_that_are_none_fail_their_own_request_alone(
    subject: Subject, llm: Callable[..., LLM], tiny: Path, dtype: str
) -> None:
    """One token's embedding is NaN: the request that has it ends in a GenerationError, its neighbours as ever."""
    poisoned = 77

    def wrap(kernel: Kernel) -> Kernel:
        @wraps(kernel)
        def embedding(tokens: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            found: Tensor = kernel(tokens, *args, **kwargs)
            return torch.where((tokens == poisoned)[:, None], torch.nan, found)

        return embedding

    clean = [[token for token in prompt if token != poisoned] for prompt in prompts(4)]
    mixed = [*clean[:2], [*clean[2][:5], poisoned, *clean[2][5:]], clean[3]]
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, logit_bias={poisoned: -100.0})
    wanted = llm(**small_options(subject)).generate(clean, params)
    with (
        faulty(subject, "embedding", wrap) as broken,
        broken.llm(str(tiny), dtype=dtype, **small_options(subject)) as engine,
    ):
        outputs = engine.generate(mixed, params)
    assert isinstance(outputs[2].error, GenerationError)
    for number in (0, 1, 3):
        assert outputs[number].error is None
        assert [a.token_ids for a in outputs[number].outputs] == [a.token_ids for a in wanted[number].outputs]


@TINY
def test_a_cache_that_cannot_be_had_is_refused_by_name(llm: Callable[..., LLM], subject: Subject) -> None:
    """Before anything is allocated, and not as whatever the allocator raises."""
    with pytest.raises(DeepInferError, match="cache_tokens|memory"):
        llm(**{**small_options(subject), "cache_tokens": 1 << 50})


def engine_request() -> Any:
    from deepinfer_core.engine.request import Request

    return Request("late", prompt_token_ids=(5, 6), params=PARAMS[0])
