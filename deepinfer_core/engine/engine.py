"""The overlapped loop: plan, build, submit, then complete the step before while the device runs this one.

What happens on the queue is in `runner.py`, what becomes of requests in `book.py`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from deepinfer_core.api.errors import DeepInferError, DeviceError
from deepinfer_core.engine.book import Book, Finished, request_error
from deepinfer_core.engine.compiling import ConstraintCompiler
from deepinfer_core.engine.needs import constrained, prompt_rows, slot_samplings, token_mask
from deepinfer_core.engine.output import OutputWriter
from deepinfer_core.engine.step import HostStep, build_step, sampled_segments
from deepinfer_core.engine.watch import Watch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from deepinfer_core.engine.admission import Admission
    from deepinfer_core.engine.feed import Piece
    from deepinfer_core.engine.request import Request
    from deepinfer_core.engine.runner import Runner, StepResult
    from deepinfer_core.interfaces.backend import Event, Queue
    from deepinfer_core.interfaces.observer import Observer
    from deepinfer_core.interfaces.scheduler import Scheduler, SchedulerStats, StepPlan
    from deepinfer_core.sampling.table import SamplingTable
    from deepinfer_core.text.tokenizer import Tokenizer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What an engine is put together from; `build.py` makes it."""

    admission: Admission
    scheduler: Scheduler
    runner: Runner
    queue: Queue
    sampling: SamplingTable
    tokenizer: Tokenizer | None
    history_rows: int  # rows of the device's token ring
    overlap: bool
    replay: Literal["exact", "bounded"] = "exact"  # how prefix hits rebuild sliding windows; outputs name it
    observers: Sequence[Observer] = ()


@dataclass(frozen=True, slots=True)
class _Launched:
    """A step whose forward was submitted. `result` is set unless sampling waits for masks."""

    plan: StepPlan
    host: HostStep
    handles: NDArray[np.int64]  # of the sampled segments
    forwarded: Event[None] | None
    result: Event[StepResult] | None


class Engine:
    """Serves requests. One thread calls it; every outcome, errors included, comes out of `step`."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._scheduler = parts.scheduler
        self._book = Book(parts.scheduler, OutputWriter(parts.tokenizer, parts.replay), parts.tokenizer)
        self._compiler = ConstraintCompiler()
        self._watch = Watch(parts.observers)
        self._keys = itertools.count()
        self._flight: _Launched | None = None
        self._dead: DeviceError | None = None

    def add(self, request: Request) -> int:
        """Take a request; its key comes back with its outcome. Raises `DeviceError` when the device has failed."""
        if self._dead is not None:
            raise self._dead
        key, arrived = next(self._keys), time.perf_counter()
        try:
            admitted = self._parts.admission.admit(request)
        except Exception as error:
            self._book.reject(key, request, request_error(error))
            return key
        if admitted.constraint is None:
            self._book.start(key, admitted, arrived, None)
        else:
            self._compiler.submit(key, admitted, arrived)
        return key

    def abort(self, key: int) -> None:
        """End a request where it stands. Nothing happens when it has already ended."""
        waiting = self._compiler.cancel(key)
        if waiting is not None:
            self._book.start(key, waiting.admitted, waiting.arrived, None)  # to end like any other, before a step
        self._book.abort(key)

    def has_unfinished(self) -> bool:
        """Whether `step` still has something to do: requests, a step in flight, or outcomes to hand out."""
        pending = len(self._book) or len(self._compiler) or self._book.has_outcomes
        return bool(pending) or (self._flight is not None and self._dead is None)

    def step(self) -> list[Finished]:
        """Submit the next step and complete the one before; the requests that ended.

        Raises `DeviceError` once the device has failed and every outcome from before was handed out. After any other
        exception, an interrupt in the midst of a step included, the engine serves no more.
        """
        if self._dead is None:
            try:
                self._advance()
            except DeviceError as error:
                self._dead = error
            except BaseException as error:
                self._dead = _broken_off(error)
                raise
        done = self._outcomes()
        if self._dead is not None and not done:
            raise self._dead
        return done

    def take_pieces(self) -> list[Piece]:
        """The text that requests with `stream` were given since the last call, in order. One that fails in the end has
        had text too."""
        return self._book.take_pieces()

    def settle(self) -> list[Finished]:
        """Complete the step in flight and submit no other; the requests that ended. Raises nothing."""
        before, self._flight = self._flight, None
        if before is not None and self._dead is None:
            try:
                self._complete(before)
            except DeviceError as error:
                self._dead = error
            except Exception as error:
                self._dead = _broken_off(error)
        return self._outcomes()

    def forget_prefixes(self) -> None:
        """Empty the prefix cache. Requests that share blocks go on."""
        self._scheduler.forget()

    def stats(self) -> SchedulerStats:
        return self._scheduler.stats()

    def close(self) -> None:
        """Let the queue finish what was submitted, and give it back. Unfinished requests are dropped."""
        self._compiler.close()
        self._parts.queue.close()

    def _advance(self) -> None:
        self._start_compiled()
        launched = self._launch()
        before, self._flight = self._flight, None  # nothing is ever in flight here without overlap
        if before is not None:
            self._complete(before)
        elif launched is None:
            assert not len(self._book) or self._book.has_outcomes, "requests are left and none of them can go on"
        if launched is not None and launched.result is None:
            launched = self._submit_sample(launched)
        if self._parts.overlap:
            self._flight = launched
        elif launched is not None:
            self._complete(launched)

    def _outcomes(self) -> list[Finished]:
        done = self._book.take()
        for finished in done:
            self._watch.finish(finished.output)
        return done

    def _start_compiled(self) -> None:
        idle = self._flight is None and not len(self._book) and not self._book.has_outcomes
        for waiting in self._compiler.ready(block=idle):
            outcome = waiting.outcome()
            if isinstance(outcome, DeepInferError):
                self._book.reject(waiting.key, waiting.admitted.request, outcome)
            else:
                self._book.start(waiting.key, waiting.admitted, waiting.arrived, outcome)

    def _launch(self) -> _Launched | None:
        """Plan, build and submit one step; without its sampling where a constraint must first see earlier tokens."""
        start = time.perf_counter_ns()
        plan = self._scheduler.plan()
        if plan is None:
            return None
        self._watch.phase("plan", plan.step, start)
        start = time.perf_counter_ns()
        self._book.preempted(plan.preempted.tolist())
        self._book.began(plan.new_slot_requests.tolist(), plan.new_slot_cached.tolist())
        sampled = sampled_segments(plan)
        host, handles = self._build(plan, sampled), plan.request[sampled]
        self._watch.phase("build", plan.step, start)
        runner = self._parts.runner
        if constrained(handles, self._book):
            forwarded = self._submit(plan.step, lambda: runner.forward(host))
            return _Launched(plan, host, handles, forwarded, None)
        result = self._submit(plan.step, lambda: runner.run(host))
        return _Launched(plan, host, handles, None, result)

    def _build(self, plan: StepPlan, sampled: NDArray[np.int64]) -> HostStep:
        sampling = self._parts.sampling.prepare(slot_samplings(plan, self._book), plan.slot[sampled])
        return build_step(plan, sampling, prompt_rows(plan, self._book), self._parts.history_rows)

    def _submit_sample(self, launched: _Launched) -> _Launched:
        """Everything before this step is committed by now: constraints know their tokens."""
        step, start = launched.plan.step, time.perf_counter_ns()
        mask = token_mask(launched.handles, self._book, self._parts.admission.vocab_size)
        self._watch.phase("mask", step, start)
        return replace(launched, result=self._submit(step, lambda: self._parts.runner.sample(mask)))

    def _complete(self, launched: _Launched) -> None:
        """Wait for a step, commit it, and hand its tokens to their answers."""
        step = launched.plan.step
        assert launched.result is not None, "a step is completed after its sampling was submitted"
        start = time.perf_counter_ns()
        if launched.forwarded is not None:
            self._wait(launched.forwarded)
        result = self._wait(launched.result)
        self._watch.phase("wait", step, start)
        self._watch.device(step, result.spans)
        start = time.perf_counter_ns()
        sampled = result.sampled
        committed = self._scheduler.commit(step, sampled.tokens.int().numpy(), sampled.counts.int().numpy())
        self._watch.phase("commit", step, start)
        start = time.perf_counter_ns()
        if result.prompt is not None:
            self._book.store_prompt(launched.host.prompt, result.prompt)
        self._book.commit(committed, sampled)
        self._watch.phase("output", step, start)
        self._watch.step(step, len(launched.plan.tokens), self._scheduler)

    def _submit(self, step: int, work: Callable[[], T]) -> Event[T]:
        start = time.perf_counter_ns()
        try:
            event = self._parts.queue.submit(work)
        except Exception as error:
            raise _device_error(error) from error
        self._watch.phase("submit", step, start)
        return event

    def _wait(self, event: Event[T]) -> T:
        try:
            return event.wait()
        except Exception as error:
            raise _device_error(error) from error


def _broken_off(error: BaseException) -> DeviceError:
    """A step that ended midway leaves plan, device and answers apart: nothing can go on from there."""
    return DeviceError(f"an earlier step was broken off by {error!r}; make a new engine")


def _device_error(error: Exception) -> DeviceError:
    return DeviceError(
        f"the device failed: {type(error).__name__}: {error}; finished answers are kept, the others need a new engine"
    )
