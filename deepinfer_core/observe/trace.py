"""The trace file: spans of host and device in the Chrome trace event format, which Perfetto and chrome://tracing show.

What records them is `timeline.py`, what is made of them `overlap.py` and `drawing.py`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepinfer_core.api.errors import InputFileError
from deepinfer_core.interfaces.observer import Phase
from deepinfer_core.observe.files import replace_file

_HOST, _DEVICE = 1, 2  # thread ids: 0 is not shown by every viewer
_TRACKS = {_HOST: "host", _DEVICE: "device"}
_PROCESS = 1
_NO_TRACE = "is no trace that --timeline or `deepinfer timeline --trace` wrote"


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the engine was when a step was committed."""

    step: int
    at_ns: int  # time.perf_counter_ns()
    rows: int  # of the step
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that was recorded, in the order in which it was reported."""

    phases: Sequence[Phase]
    loads: Sequence[Load] = field(default=())

    def rows(self) -> Mapping[int, int]:
        """Rows by step. A step that was not committed has none."""
        return {load.step: load.rows for load in self.loads}


def write_trace(trace: Trace, path: Path) -> None:
    """Times become microseconds since the first span. Raises `ConfigError` when the file cannot be written."""
    replace_file(path, _lines(trace))


def read_trace(path: Path) -> Trace:
    """What `write_trace` wrote, times in nanoseconds since the first span. Raises `InputFileError`."""
    try:
        events = json.loads(path.read_bytes())["traceEvents"]
        phases = [_phase(event) for event in events if event["ph"] == "X"]
        loads = [_load(event) for event in events if event["ph"] == "C"]
    except OSError as error:
        raise InputFileError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputFileError(f"{path} {_NO_TRACE}: {type(error).__name__}: {error}") from error
    return Trace(phases, loads)


def _lines(trace: Trace) -> Iterator[bytes]:
    yield b'{"displayTimeUnit": "ms", "traceEvents": [\n'
    separator = b""
    for event in _events(trace):
        yield separator + json.dumps(event).encode()
        separator = b",\n"
    yield b"\n]}\n"


def _events(trace: Trace) -> Iterator[dict[str, Any]]:
    start_ns = min((phase.start_ns for phase in trace.phases), default=0)
    yield {"name": "process_name", "ph": "M", "pid": _PROCESS, "args": {"name": "deepinfer"}}
    for track, name in _TRACKS.items():
        of_thread = {"ph": "M", "pid": _PROCESS, "tid": track}
        yield {"name": "thread_name", **of_thread, "args": {"name": name}}
        yield {"name": "thread_sort_index", **of_thread, "args": {"sort_index": track}}
    rows = trace.rows()
    for phase in trace.phases:
        known = {"rows": rows[phase.step]} if phase.step in rows else {}
        yield {
            "name": phase.name,
            "ph": "X",
            **_place(phase, start_ns),
            "dur": _microseconds(phase.end_ns - phase.start_ns),
            "args": {"step": phase.step, **known},
        }
    for load in trace.loads:
        counts = {"rows": load.rows, "running": load.running, "waiting": load.waiting}
        at = {"pid": _PROCESS, "ts": _microseconds(max(load.at_ns - start_ns, 0))}
        yield {"name": "load", "ph": "C", "step": load.step, **at, "args": counts}  # viewers pass over "step"
    yield from _flows(trace, start_ns)


def _flows(trace: Trace, start_ns: int) -> Iterator[dict[str, Any]]:
    """Arrows from each submission to what it made the device do. A step with a constraint has two: the forward, and
    the sampling that waited for the mask."""
    submitted, ran = defaultdict(list), defaultdict(list)
    for phase in trace.phases:
        if phase.device:
            ran[phase.step].append(phase)
        elif phase.name == "submit":
            submitted[phase.step].append(phase)
    number = 0
    for step, sources in submitted.items():
        for source, sink in zip(sources, ran[step], strict=False):
            arrow = {"name": "submit", "cat": "step", "id": number}
            yield {**arrow, "ph": "s", **_place(source, start_ns)}
            yield {**arrow, "ph": "f", "bp": "e", **_place(sink, start_ns)}
            number += 1


def _place(phase: Phase, start_ns: int) -> dict[str, Any]:
    track = _DEVICE if phase.device else _HOST
    return {"pid": _PROCESS, "tid": track, "ts": _microseconds(phase.start_ns - start_ns)}


def _microseconds(nanoseconds: int) -> float:
    return nanoseconds / 1000


def _phase(event: Mapping[str, Any]) -> Phase:
    start = _nanoseconds(event["ts"])
    track = _TRACKS[event["tid"]]
    return Phase(event["name"], event["args"]["step"], start, start + _nanoseconds(event["dur"]), track == "device")


def _load(event: Mapping[str, Any]) -> Load:
    counts = event["args"]
    return Load(event["step"], _nanoseconds(event["ts"]), counts["rows"], counts["running"], counts["waiting"])


def _nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)
