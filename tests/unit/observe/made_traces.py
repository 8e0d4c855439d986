"""Traces of a made-up engine, in nanoseconds that can be checked by hand."""

from __future__ import annotations

from deepinfer_core.interfaces.observer import Phase
from deepinfer_core.interfaces.scheduler import SchedulerStats
from deepinfer_core.observe.timeline import Timeline
from deepinfer_core.observe.trace import Trace

STATS = SchedulerStats(waiting=2, running=5, free_blocks=3, used_blocks=4, cached_blocks=1, free_slots=6, preemptions=7)
STEP = 10_000  # nanoseconds from one step's start to the next
WORK = 400  # of each host phase


def record(timeline: Timeline, step: int, rows: int, overlap: bool = True) -> None:
    """A step in which the device runs for 9000 of 10000 ns. With overlap the host plans a step while the one before
    runs, and then waits for that one; without, it plans in the gap between the two."""
    start = step * STEP
    planned = start - 9500 if overlap else start - 900
    waiting = start + 1700 if overlap else start + 300
    for place, name in enumerate(("plan", "build")):
        timeline.on_phase(Phase(name, step, planned + place * WORK, planned + (place + 1) * WORK, device=False))
    timeline.on_phase(Phase("submit", step, planned + 2 * WORK, planned + 2 * WORK + 50, device=False))
    timeline.on_phase(Phase("wait", step, waiting, start + 9000, device=False))
    timeline.on_phase(Phase("forward", step, start, start + 8000, device=True))
    timeline.on_phase(Phase("sample", step, start + 8000, start + 9000, device=True))
    timeline.on_step(step, rows, STATS)


def made_trace(steps: int = 12, overlap: bool = True) -> Trace:
    """A prompt of 40 rows, then steps of 8 rows, then one of 3."""
    timeline = Timeline()
    record(timeline, 1, 40, overlap)
    for step in range(2, 2 + steps):
        record(timeline, step, 8, overlap)
    record(timeline, 2 + steps, 3, overlap)
    return timeline.trace
