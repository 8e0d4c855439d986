"""A Chrome trace of host phases and device steps, so that anyone can see the overlap in a trace viewer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepinfer_core.api.outputs import RequestOutput
    from deepinfer_core.interfaces.observer import Phase
    from deepinfer_core.interfaces.scheduler import SchedulerStats

MAX_EVENTS = 1_000_000  # a trace stops growing here; what comes later is counted, not kept

_HOST, _DEVICE = 0, 1


class Timeline:
    """An observer that keeps every phase and writes them as one trace file."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self.dropped = 0

    def on_phase(self, phase: Phase) -> None:
        self._keep(
            {
                "name": phase.name,
                "ph": "X",
                "ts": phase.start_ns / 1e3,
                "dur": (phase.end_ns - phase.start_ns) / 1e3,
                "pid": 0,
                "tid": _DEVICE if phase.device else _HOST,
                "args": {"step": phase.step},
            }
        )

    def on_step(self, step: int, rows: int, stats: SchedulerStats) -> None:
        counts = {"rows": rows, "running": stats.running, "waiting": stats.waiting}
        self._keep({"name": "load", "ph": "C", "ts": time.perf_counter_ns() / 1e3, "pid": 0, "args": counts})

    def on_finish(self, output: RequestOutput) -> None:
        """Requests leave no mark of their own."""

    def write(self, path: Path) -> None:
        """Write the trace: JSON in the Chrome trace event format, times in microseconds."""
        names = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": track, "args": {"name": name}}
            for track, name in ((_HOST, "host"), (_DEVICE, "device"))
        ]
        path.write_text(json.dumps({"traceEvents": names + self._events}), encoding="utf-8")

    def _keep(self, event: dict[str, Any]) -> None:
        if len(self._events) < MAX_EVENTS:
            self._events.append(event)
        else:
            self.dropped += 1
