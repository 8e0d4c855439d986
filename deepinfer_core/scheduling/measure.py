"""What the scheduler costs the host: time of plan and commit at a steady number of running requests. No device."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median, quantiles

import numpy as np

from deepinfer_core.interfaces.scheduler import Scheduler, SchedulerLimits, SchedulerRequest
from deepinfer_core.scheduling.native import NativeScheduler

PROMPT = 100  # tokens of each request: more than a block, and no multiple of one
BLOCK_SIZE = 64
WARM_UP = 20  # decode steps that are not counted


@dataclass(frozen=True, slots=True)
class ScheduleCost:
    """Microseconds of host time a decode step, over `steps` steps with one more step always in flight."""

    running: int
    steps: int
    plan_median: float
    plan_p99: float
    commit_median: float
    commit_p99: float


def measure_schedule(running: Iterable[int] = (1, 16, 64, 256), steps: int = 500) -> tuple[ScheduleCost, ...]:
    """One cost for each number of running requests. `steps` is at least 2."""
    return tuple(_measure(count, steps) for count in running)


def _measure(running: int, steps: int) -> ScheduleCost:
    scheduler = _busy(running, PROMPT + steps + 2 * WARM_UP)
    plans: list[int] = []
    commits: list[int] = []
    in_flight = _plan(scheduler, plans)
    for _ in range(WARM_UP + steps):
        following = _plan(scheduler, plans)
        _commit(scheduler, in_flight, running, commits)
        in_flight = following
    plan_us = [ns / 1000 for ns in plans[-steps:]]
    commit_us = [ns / 1000 for ns in commits[-steps:]]
    return ScheduleCost(running, steps, median(plan_us), _p99(plan_us), median(commit_us), _p99(commit_us))


def _busy(running: int, length: int) -> Scheduler:
    """A scheduler whose requests have all been prefilled, with room for `length` tokens each."""
    blocks = running * (length // BLOCK_SIZE + 1)
    scheduler = NativeScheduler(SchedulerLimits(running, blocks, BLOCK_SIZE, running * PROMPT, length))
    for request in range(running):
        scheduler.add(SchedulerRequest(request, np.zeros(PROMPT, np.int32), max_new_tokens=length))
    _commit(scheduler, _plan(scheduler, []), running, [])
    return scheduler


def _plan(scheduler: Scheduler, times: list[int]) -> int:
    start = time.perf_counter_ns()
    plan = scheduler.plan()
    times.append(time.perf_counter_ns() - start)
    assert plan is not None
    return plan.step


def _commit(scheduler: Scheduler, step: int, running: int, times: list[int]) -> None:
    tokens, counts = np.zeros((running, 1), np.int32), np.ones(running, np.int32)
    start = time.perf_counter_ns()
    scheduler.commit(step, tokens, counts)
    times.append(time.perf_counter_ns() - start)


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[-1]
