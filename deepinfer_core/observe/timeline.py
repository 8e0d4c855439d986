"""An observer that keeps every span and every step's load, to become a trace file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.observe.trace import Load, Trace, write_trace

if TYPE_CHECKING:
    from deepinfer_core.api.outputs import RequestOutput
    from deepinfer_core.interfaces.observer import Phase
    from deepinfer_core.interfaces.scheduler import SchedulerStats

MAX_EVENTS = 500_000  # a timeline stops growing here (some 100 MB); what comes later is counted, not kept


class Timeline:
    """Keeps what it is told, in bounded memory."""

    def __init__(self) -> None:
        self._phases: list[Phase] = []
        self._loads: list[Load] = []
        self.dropped = 0

    @property
    def trace(self) -> Trace:
        """What was recorded so far."""
        return Trace(self._phases, self._loads)

    def on_phase(self, phase: Phase) -> None:
        if self._has_room():
            self._phases.append(phase)

    def on_step(self, step: int, rows: int, stats: SchedulerStats) -> None:
        if self._has_room():
            self._loads.append(Load(step, time.perf_counter_ns(), rows, stats.running, stats.waiting))

    def on_finish(self, output: RequestOutput) -> None:
        """Requests leave no mark of their own."""

    def write(self, path: Path) -> None:
        """Write the trace file. Raises `ConfigError` when it cannot be written."""
        write_trace(self.trace, path)

    def _has_room(self) -> bool:
        room = len(self._phases) + len(self._loads) < MAX_EVENTS
        self.dropped += not room
        return room
