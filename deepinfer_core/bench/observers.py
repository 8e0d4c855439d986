"""What watching costs the engine's thread in a decode step: nobody, a timeline or metrics being told of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from deepinfer_core.engine.runner import Span
from deepinfer_core.engine.watch import Watch
from deepinfer_core.interfaces.scheduler import SchedulerLimits, SchedulerRequest
from deepinfer_core.observe.timeline import Timeline
from deepinfer_core.scheduling.native import NativeScheduler

if TYPE_CHECKING:
    from deepinfer_core.interfaces.observer import Observer

RUNNING = 64  # requests of the step
HOST_PHASES = ("plan", "build", "submit", "wait", "commit", "output")


@dataclass(frozen=True, slots=True)
class ObserverCost:
    """Microseconds of the engine's thread a step, the median over `steps`."""

    observers: str
    steps: int
    step: float


def measure_observers(steps: int = 2000) -> tuple[ObserverCost, ...]:
    """Nobody, a timeline, and metrics where prometheus-client is there."""
    watching: dict[str, list[Observer]] = {"nobody": [], "timeline": [Timeline()]}
    if find_spec("prometheus_client") is not None:
        from deepinfer_core.observe.metrics import Metrics

        watching["metrics"] = [Metrics()]
    return tuple(ObserverCost(name, steps, _measure(Watch(found), steps)) for name, found in watching.items())


def _measure(watch: Watch, steps: int) -> float:
    scheduler = _scheduler()
    times = []
    for step in range(steps):
        now = time.perf_counter_ns()
        spans = (Span("forward", now - 2_000_000, now - 100_000), Span("sample", now - 100_000, now))
        start = time.perf_counter_ns()
        for name in HOST_PHASES:
            watch.phase(name, step, time.perf_counter_ns())
        watch.device(step, spans)
        watch.step(step, RUNNING, scheduler)
        times.append((time.perf_counter_ns() - start) / 1000)
    return median(times)


def _scheduler() -> NativeScheduler:
    """One that has planned a step of `RUNNING` requests, for its counts."""
    scheduler = NativeScheduler(SchedulerLimits(RUNNING, 2 * RUNNING, 64, RUNNING, 128))
    for request in range(RUNNING):
        scheduler.add(SchedulerRequest(request, np.zeros(1, np.int32), max_new_tokens=8))
    scheduler.plan()
    return scheduler


def render(costs: Sequence[ObserverCost]) -> str:
    """A table for people."""
    return "\n".join(["watching      us/step", *(f"{c.observers:10} {c.step:10.1f}" for c in costs)])
