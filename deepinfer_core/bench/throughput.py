"""Decoding speed of a model at several batch sizes, the share of time in kernels and the memory floor beside it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deepinfer_core.api.config import EngineConfig, read_environment
from deepinfer_core.api.errors import ConfigError
from deepinfer_core.bench.bandwidth import read_bandwidth
from deepinfer_core.bench.watching import OpTotals, WatchedDevice
from deepinfer_core.bench.workload import random_requests, serve
from deepinfer_core.engine.build import Built, build_engine
from deepinfer_core.plugin.loader import load_plugins

if TYPE_CHECKING:
    from deepinfer_core.api.outputs import RequestOutput
    from deepinfer_core.interfaces.observer import Phase
    from deepinfer_core.interfaces.scheduler import SchedulerStats

WARM_UP_STEPS = 4  # decode steps of each batch that are not counted


@dataclass(frozen=True, slots=True)
class Throughput:
    """Decode steps of one batch size. Times are medians over steps, in seconds."""

    batch: int
    steps: int
    step: float  # wall time of a step
    kernels: float  # time inside ops
    host: float  # time in plan, build, commit and output
    floor: float  # weight bytes of a step over the machine's read bandwidth
    weight_bytes: int

    @property
    def tokens_per_second(self) -> float:
        return self.batch / self.step


@dataclass(slots=True)
class _StepClock:
    """An observer that keeps, for each step of exactly `rows` rows, its wall time and what the ops did meanwhile."""

    totals: OpTotals
    rows: int = 0
    last: float = 0.0
    host_ns: int = 0
    walls: list[float] = field(default_factory=list)
    kernels: list[float] = field(default_factory=list)
    hosts: list[float] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)

    def start(self, rows: int) -> None:
        self.rows, self.last = rows, time.perf_counter()
        for kept in (self.walls, self.kernels, self.hosts, self.weights):
            kept.clear()

    def on_phase(self, phase: Phase) -> None:
        if not phase.device and phase.name != "wait":
            self.host_ns += phase.end_ns - phase.start_ns

    def on_step(self, step: int, rows: int, stats: SchedulerStats) -> None:
        now = time.perf_counter()
        if rows == self.rows:
            self.walls.append(now - self.last)
            self.kernels.append(sum(self.totals.nanoseconds.values()) / 1e9)
            self.hosts.append(self.host_ns / 1e9)
            self.weights.append(self.totals.weight_bytes)
        self.totals.reset()
        self.last, self.host_ns = now, 0

    def on_finish(self, output: RequestOutput) -> None:
        """Outcomes do not matter here."""

    def result(self, bandwidth: float) -> Throughput:
        counted = slice(WARM_UP_STEPS, -1)  # the last one may overlap a step with fewer rows
        if not self.walls[counted]:
            raise ConfigError(
                f"no step of {self.rows} rows was left to count: give at most max_running requests and at least "
                f"{WARM_UP_STEPS + 4} answer tokens"
            )
        weights = int(statistics.median(self.weights[counted]))
        return Throughput(
            batch=self.rows,
            steps=len(self.walls[counted]),
            step=statistics.median(self.walls[counted]),
            kernels=statistics.median(self.kernels[counted]),
            host=statistics.median(self.hosts[counted]),
            floor=weights / bandwidth,
            weight_bytes=weights,
        )


def measure_throughput(
    config: EngineConfig, batches: Sequence[int], prompt_tokens: int, new_tokens: int
) -> list[Throughput]:
    """Decode `new_tokens` greedily after random prompts, for each batch size. Ends of sequences are ignored."""
    totals = OpTotals({})
    clock = _StepClock(totals)
    environment = read_environment()
    plugins = load_plugins(environment)
    built = build_engine(
        config, environment, plugins, [clock], wrap_device=lambda device: WatchedDevice(device, totals)
    )
    try:
        bandwidth = read_bandwidth(built.device.torch_device)
        return [_measure(built, clock, batch, prompt_tokens, new_tokens, bandwidth) for batch in batches]
    finally:
        built.close()


def _measure(
    built: Built, clock: _StepClock, batch: int, prompt_tokens: int, new_tokens: int, bandwidth: float
) -> Throughput:
    requests = list(random_requests(built.info, batch, prompt_tokens, new_tokens))
    clock.start(batch)
    serve(built, requests)
    return clock.result(bandwidth)


def render(results: Sequence[Throughput]) -> str:
    """A table for people."""
    lines = ["batch   tokens/s   ms/step   kernels   host ms   weights MB   floor ms   step/floor"]
    for r in results:
        lines.append(
            f"{r.batch:5d} {r.tokens_per_second:10.1f} {r.step * 1e3:9.2f} {r.kernels / r.step:8.0%} "
            f"{r.host * 1e3:9.3f} {r.weight_bytes / 1e6:12.1f} {r.floor * 1e3:10.2f} {r.step / r.floor:12.1f}"
        )
    return "\n".join(lines)
