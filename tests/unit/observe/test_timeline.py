"""The trace file: what a trace viewer is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepinfer_core.interfaces.observer import Observer, Phase
from deepinfer_core.interfaces.scheduler import SchedulerStats
from deepinfer_core.observe import timeline as module
from deepinfer_core.observe.timeline import Timeline

STATS = SchedulerStats(2, 5, 1, 1, 0, 1, 0)


def trace(timeline: Timeline, folder: Path) -> list[dict[str, Any]]:
    path = folder / "trace.json"
    timeline.write(path)
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def test_host_and_device_are_two_tracks_in_microseconds(tmp_path: Path) -> None:
    timeline: Observer = Timeline()
    timeline.on_phase(Phase("plan", 3, 1000, 3500, device=False))
    timeline.on_phase(Phase("forward", 3, 2000, 9000, device=True))
    assert isinstance(timeline, Timeline)
    events = trace(timeline, tmp_path)
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    spans = [event for event in events if event["ph"] == "X"]
    assert [(tracks[e["tid"]], e["name"], e["ts"], e["dur"], e["args"]) for e in spans] == [
        ("host", "plan", 1.0, 2.5, {"step": 3}),
        ("device", "forward", 2.0, 7.0, {"step": 3}),
    ]


def test_the_load_is_counted_at_each_step(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.on_step(0, 40, STATS)
    (counter,) = [event for event in trace(timeline, tmp_path) if event["ph"] == "C"]
    assert counter["args"] == {"rows": 40, "running": 5, "waiting": 2}


def test_a_trace_stops_growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EVENTS", 2)
    timeline = Timeline()
    for step in range(5):
        timeline.on_step(step, 1, STATS)
    assert timeline.dropped == 3
    assert len([event for event in trace(timeline, tmp_path) if event["ph"] == "C"]) == 2
