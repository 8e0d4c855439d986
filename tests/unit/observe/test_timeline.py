"""The trace file: what a trace viewer is given, and reading it back."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_traces import STATS, made_trace, record

from deepinfer_core.api.errors import ConfigError, InputFileError
from deepinfer_core.interfaces.observer import Observer, Phase
from deepinfer_core.observe import timeline as module
from deepinfer_core.observe.timeline import Timeline
from deepinfer_core.observe.trace import Load, Trace, read_trace, write_trace


def events_of(timeline: Timeline, folder: Path) -> list[dict[str, Any]]:
    path = folder / "trace.json"
    timeline.write(path)
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def tracks(events: list[dict[str, Any]]) -> dict[int, str]:
    return {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}


def test_host_and_device_are_two_tracks_in_microseconds_since_the_start(tmp_path: Path) -> None:
    timeline: Observer = Timeline()
    timeline.on_phase(Phase("plan", 3, 5000, 7500, device=False))
    timeline.on_phase(Phase("forward", 3, 6000, 13000, device=True))
    assert isinstance(timeline, Timeline)
    events = events_of(timeline, tmp_path)
    spans = [event for event in events if event["ph"] == "X"]
    assert [(tracks(events)[e["tid"]], e["name"], e["ts"], e["dur"], e["args"]) for e in spans] == [
        ("host", "plan", 0.0, 2.5, {"step": 3}),
        ("device", "forward", 1.0, 7.0, {"step": 3}),
    ]


def test_spans_say_how_many_rows_their_step_had(tmp_path: Path) -> None:
    timeline = Timeline()
    record(timeline, 4, rows=40)
    spans = [event for event in events_of(timeline, tmp_path) if event["ph"] == "X"]
    assert {event["name"] for event in spans} == {"plan", "build", "submit", "wait", "forward", "sample"}
    assert all(event["args"] == {"step": 4, "rows": 40} for event in spans)


def test_the_load_is_counted_at_each_step(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.on_step(0, 40, STATS)
    (counter,) = [event for event in events_of(timeline, tmp_path) if event["ph"] == "C"]
    assert counter["args"] == {"rows": 40, "running": 5, "waiting": 2}


def test_an_arrow_leads_from_each_submission_to_what_it_made_the_device_do(tmp_path: Path) -> None:
    timeline = Timeline()
    record(timeline, 1, rows=8)
    timeline.on_phase(Phase("submit", 2, 20_000, 20_100, device=False))
    timeline.on_phase(Phase("submit", 2, 29_000, 29_100, device=False))  # the sampling waited for a mask
    timeline.on_phase(Phase("forward", 2, 20_050, 28_000, device=True))
    timeline.on_phase(Phase("sample", 2, 29_050, 30_000, device=True))
    events = events_of(timeline, tmp_path)
    spans = {(event["tid"], event["ts"]): (event["name"], event["args"]["step"]) for event in events if "dur" in event}
    arrows: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["ph"] in "sf":
            arrows.setdefault(event["id"], {})[event["ph"]] = spans[event["tid"], event["ts"]]
    assert list(arrows.values()) == [
        {"s": ("submit", 1), "f": ("forward", 1)},
        {"s": ("submit", 2), "f": ("forward", 2)},
        {"s": ("submit", 2), "f": ("sample", 2)},
    ]


def test_every_event_is_of_the_format(tmp_path: Path) -> None:
    write_trace(made_trace(), tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"X", "C", "M", "s", "f"} == {event["ph"] for event in events}
    assert all(event["ts"] >= 0 for event in events if event["ph"] != "M")
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
    assert all(event["bp"] == "e" for event in events if event["ph"] == "f")  # it ends in the span that encloses it
    starts, ends = (Counter(e["id"] for e in events if e["ph"] == kind) for kind in "sf")
    assert starts == ends
    assert set(starts.values()) == {1}


def test_a_trace_without_events_is_valid(tmp_path: Path) -> None:
    assert {event["ph"] for event in events_of(Timeline(), tmp_path)} == {"M"}


spans = st.builds(
    lambda name, step, start, length, device: Phase(name, step, start, start + length, device),
    st.text(max_size=8),
    st.integers(0, 1 << 40),
    st.integers(0, 10**15),
    st.integers(0, 10**12),
    st.booleans(),
)


@given(phases=st.lists(spans, min_size=1, max_size=8), rows=st.integers(1, 512))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, phases: list[Phase], rows: int) -> None:
    path = tmp_path_factory.getbasetemp() / "trace.json"
    first = min(phase.start_ns for phase in phases)
    loads = [Load(phases[0].step, first + 7, rows, 2, 1)]
    write_trace(Trace(phases, loads), path)
    found = read_trace(path)
    assert found.loads == [Load(phases[0].step, 7, rows, 2, 1)]
    assert found.phases == [Phase(p.name, p.step, p.start_ns - first, p.end_ns - first, p.device) for p in phases]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"traceEvents": [{"ph": "X"}]}',
        b'{"traceEvents": [3]}',
        b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 0, "dur": 1, "tid": 9, "args": {"step": 1}}]}',
        b"[" * 100_000,
    ],
    ids=range(8),
)
def test_another_file_is_no_trace(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(InputFileError, match=r"other.json is no trace that --timeline"):
        read_trace(path)


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="nowhere.json cannot be read: No such file"):
        read_trace(tmp_path / "nowhere.json")


def test_a_timeline_stops_growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EVENTS", 3)
    timeline = Timeline()
    timeline.on_phase(Phase("plan", 0, 0, 1, device=False))
    for step in range(5):
        timeline.on_step(step, 1, STATS)
    timeline.on_phase(Phase("plan", 9, 0, 1, device=False))
    assert timeline.dropped == 4
    assert len([event for event in events_of(timeline, tmp_path) if event["ph"] in "CX"]) == 3


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trace.json cannot be written: No such file"):
        Timeline().write(tmp_path / "nowhere" / "trace.json")
