"""What a trace says of the steady state: the time of each phase, how much host work the device hides, and its gaps."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.interfaces.observer import Phase
from deepinfer_core.observe.trace import Trace

FEWEST_STEPS = 4  # alike and in a row: below this there is no steady state
_EDGE = 2  # steps at either end of the steady state that overlap with others

Spans = Sequence[tuple[int, int]]  # (start, end) in nanoseconds, in order, disjoint


@dataclass(frozen=True, slots=True)
class Overlap:
    """Microseconds a step, medians over `steps` consecutive steps of the same size. Shares are in [0, 1]."""

    steps: int
    rows: int  # of each step
    step: float  # from one step's forward to the next one's
    host: Mapping[str, float]  # by phase, in order of time
    device: Mapping[str, float]
    overlapped: float  # share of host work, waiting not counted, that ran while the device was busy
    busy: float  # share of time that the device was busy
    gap: float  # of the device between two steps
    gap_p90: float


def steady_steps(trace: Trace) -> list[int]:
    """Of the runs of complete consecutive steps with equally many rows, the one that took longest, less its edges.

    Raises `ConfigError` when there is none of `FEWEST_STEPS`.
    """
    rows = trace.rows()
    complete = set(rows)
    for name in ("wait", "forward", "sample"):
        complete &= {phase.step for phase in trace.phases if phase.name == name}
    runs: list[list[int]] = [[]]
    for step in sorted(complete):
        if runs[-1] and (step != runs[-1][-1] + 1 or rows[step] != rows[runs[-1][0]]):
            runs.append([])
        runs[-1].append(step)
    enough = [run for run in runs if len(run) >= FEWEST_STEPS]
    if not enough:
        raise ConfigError(
            f"there is no steady state: the longest run of steps alike has {max(map(len, runs))} of them, and "
            f"{FEWEST_STEPS} are needed; give more steps or equally long prompts"
        )
    spans = _by_step(phase for phase in trace.phases if phase.device)
    steady = max(enough, key=lambda run: spans[run[-1]][1] - spans[run[0]][0])
    return steady[_EDGE:-_EDGE] if len(steady) >= FEWEST_STEPS + 2 * _EDGE else steady


def measure_overlap(trace: Trace) -> Overlap:
    """Raises `ConfigError` when the trace has no steady state."""
    steps = steady_steps(trace)
    chosen = set(steps)
    phases = [phase for phase in trace.phases if phase.step in chosen]
    busy = _device_spans(trace)
    host_work = [(p.start_ns, p.end_ns) for p in phases if not p.device and p.name != "wait"]
    ran = _by_step(phase for phase in phases if phase.device)
    pairs = list(itertools.pairwise(ran[step] for step in steps))
    whole = [(ran[steps[0]][0], ran[steps[-1]][1])]
    gaps = [after[0] - before[1] for before, after in pairs]
    return Overlap(
        steps=len(steps),
        rows=trace.rows()[steps[0]],
        step=median(after[0] - before[0] for before, after in pairs) / 1000,
        host=_medians([phase for phase in phases if not phase.device], len(steps)),
        device=_medians([phase for phase in phases if phase.device], len(steps)),
        overlapped=_share(host_work, busy),
        busy=_share(whole, busy),
        gap=median(gaps) / 1000,
        gap_p90=quantiles(gaps, n=10)[-1] / 1000,
    )


def render(found: Overlap) -> str:
    """A summary for people."""
    work = sum(value for name, value in found.host.items() if name != "wait")
    lines = [f"{found.steps} steps of {found.rows} rows in the steady state, {found.step:.0f} us each (medians)", ""]
    for lane, times in (("host", found.host), ("device", found.device)):
        for name, value in times.items():
            lines.append(f"{lane:8}{name:10}{value:10.1f} us")
            lane = ""
    lines += [
        "",
        f"host work {work:.0f} us a step (waiting not counted), {found.overlapped:.0%} of it while the device was busy",
        f"device busy {found.busy:.1%} of the time; idle between two steps {found.gap:.0f} us, "
        f"90th percentile {found.gap_p90:.0f} us",
    ]
    return "\n".join(lines)


def _device_spans(trace: Trace) -> Spans:
    """The queue runs one thing at a time: spans are disjoint."""
    return sorted((phase.start_ns, phase.end_ns) for phase in trace.phases if phase.device)


def _by_step(phases: Iterable[Phase]) -> dict[int, tuple[int, int]]:
    """From the first start to the last end of each step."""
    spans: dict[int, tuple[int, int]] = {}
    for phase in phases:
        start, end = spans.get(phase.step, (phase.start_ns, phase.end_ns))
        spans[phase.step] = min(start, phase.start_ns), max(end, phase.end_ns)
    return spans


def _medians(phases: Sequence[Phase], steps: int) -> dict[str, float]:
    """Microseconds of each phase. A step without the phase counts as none, one with two of them as their sum."""
    times: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for phase in phases:
        times[phase.name][phase.step] += phase.end_ns - phase.start_ns
    return {name: median([*of_step.values(), *[0] * (steps - len(of_step))]) / 1000 for name, of_step in times.items()}


def _share(spans: Spans, busy: Spans) -> float:
    """The share of `spans` that lies within `busy`."""
    total = sum(end - start for start, end in spans)
    return sum(_within(span, busy) for span in spans) / total if total else 0.0


def _within(span: tuple[int, int], busy: Spans) -> int:
    start, end = span
    first = max(bisect_right(busy, (start,)) - 1, 0)
    inside = 0
    for busy_start, busy_end in itertools.islice(busy, first, None):
        if busy_start >= end:
            break
        inside += max(0, min(end, busy_end) - max(start, busy_start))
    return inside
