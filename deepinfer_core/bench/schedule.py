"""What a decode step costs the host, at a steady number of running requests: plan, build and commit, without a device.
With and without the prefix cache, whose steps alternate, so that both see the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import TypeVar

import numpy as np
import torch

from deepinfer_core.engine.needs import NO_PROMPT_ROWS
from deepinfer_core.engine.step import build_step, sampled_segments
from deepinfer_core.interfaces.scheduler import PrefixRules, SchedulerLimits, SchedulerRequest, StepPlan
from deepinfer_core.sampling.table import SamplingTable
from deepinfer_core.scheduling.native import NativeScheduler

PROMPT = 100  # tokens of each request: more than a block, and no multiple of one
BLOCK_SIZE = 64
HISTORY_ROWS = 8
VOCABULARY = 1024
WARM_UP = 20  # decode steps that are not counted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScheduleCost:
    """Microseconds of host time a decode step, over `steps` steps with one more step always in flight."""

    running: int
    prefix_cache: bool
    steps: int
    plan: float  # medians
    build: float
    commit: float
    total: float
    total_p99: float


@dataclass(slots=True)
class _Clock:
    """Nanoseconds of each phase, step by step."""

    times: dict[str, list[int]] = field(default_factory=dict)

    def time(self, phase: str, work: Callable[[], T]) -> T:
        start = time.perf_counter_ns()
        result = work()
        self.times.setdefault(phase, []).append(time.perf_counter_ns() - start)
        return result

    def microseconds(self, phase: str, steps: int) -> list[float]:
        return [ns / 1000 for ns in self.times[phase][-steps:]]


class _Host:
    """What the engine does on the host in a step of greedy requests, on the engine's own parts."""

    def __init__(self, running: int, length: int, prefix: PrefixRules | None) -> None:
        blocks = running * (length // BLOCK_SIZE + 1)
        limits = SchedulerLimits(running, blocks, BLOCK_SIZE, running * PROMPT, length, prefix=prefix)
        self._running = running
        self._scheduler = NativeScheduler(limits)
        self._sampling = SamplingTable(running, VOCABULARY, torch.device("cpu"))
        self.clock = _Clock()
        for request in range(running):
            prompt = np.full(PROMPT, request, np.int32)
            self._scheduler.add(SchedulerRequest(request, prompt, max_new_tokens=length, cache_key=bytes(16)))
        self.complete(self.launch())  # the prompts
        self._in_flight = self.launch()

    def step(self) -> None:
        """Launch a step, and complete the one before."""
        following = self.launch()
        self.complete(self._in_flight)
        self._in_flight = following

    def launch(self) -> int:
        """Plan and build a step; its number."""
        plan = self.clock.time("plan", self._scheduler.plan)
        assert plan is not None, "every request has room to go on"
        self.clock.time("build", lambda: self._build(plan))
        return plan.step

    def complete(self, step: int) -> None:
        tokens, counts = np.zeros((self._running, 1), np.int32), np.ones(self._running, np.int32)
        self.clock.time("commit", lambda: self._scheduler.commit(step, tokens, counts))

    def _build(self, plan: StepPlan) -> None:
        sampled = sampled_segments(plan)
        sampling = self._sampling.prepare([], plan.slot[sampled])
        build_step(plan, sampling, NO_PROMPT_ROWS, HISTORY_ROWS)


def measure_schedule(running: Iterable[int] = (1, 16, 64, 256), steps: int = 500) -> tuple[ScheduleCost, ...]:
    """Two costs for each number of running requests: without and with the prefix cache. `steps` is at least 2."""
    return tuple(cost for count in running for cost in _measure(count, steps))


def _measure(running: int, steps: int) -> tuple[ScheduleCost, ...]:
    length = PROMPT + steps + 2 * WARM_UP
    hosts = {rules is not None: _Host(running, length, rules) for rules in (None, PrefixRules(0, 0, 0))}
    for _ in range(WARM_UP + steps):
        for host in hosts.values():
            host.step()
    return tuple(_cost(host, running, cached, steps) for cached, host in hosts.items())


def _cost(host: _Host, running: int, cached: bool, steps: int) -> ScheduleCost:
    plan, build, commit = (host.clock.microseconds(phase, steps) for phase in ("plan", "build", "commit"))
    total = [sum(parts) for parts in zip(plan, build, commit, strict=True)]
    p99 = quantiles(total, n=100)[-1]
    return ScheduleCost(running, cached, steps, median(plan), median(build), median(commit), median(total), p99)


def render(costs: Sequence[ScheduleCost]) -> str:
    """A table for people, in microseconds."""
    lines = ["running  prefixes   plan us   build us   commit us   total us      p99"]
    for c in costs:
        prefixes = "cached" if c.prefix_cache else "-"
        lines.append(
            f"{c.running:7d} {prefixes:>9} {c.plan:9.1f} {c.build:10.1f} {c.commit:11.1f} {c.total:10.1f} "
            f"{c.total_p99:8.1f}"
        )
    return "\n".join(lines)
