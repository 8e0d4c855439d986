"""The seam for metrics and traces: what the engine tells whoever watches. Observers must not raise or block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from deepinfer_core.api.outputs import RequestOutput
    from deepinfer_core.interfaces.scheduler import SchedulerStats


@dataclass(frozen=True, slots=True)
class Phase:
    """One span of work. Times are `time.perf_counter_ns()`."""

    name: str  # "plan", "build", "submit", "wait", "commit", "output", "mask"; on the queue "forward", "sample"
    step: int
    start_ns: int
    end_ns: int
    device: bool  # True for work on the execution queue


class Observer(Protocol):
    """Called from the engine's thread."""

    def on_phase(self, phase: Phase) -> None: ...

    def on_step(self, step: int, rows: int, stats: SchedulerStats) -> None: ...

    def on_finish(self, output: RequestOutput) -> None: ...
