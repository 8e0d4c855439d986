"""A picture of some steps: what the host does, what the device does, and one handover of the host magnified.

Needs matplotlib, which the extra `timeline` installs: nothing imports this module before it is asked for.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from deepinfer_core.observe.files import replace_file
from deepinfer_core.observe.overlap import measure_overlap, steady_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deepinfer_core.interfaces.observer import Phase
    from deepinfer_core.observe.trace import Trace

# Colours that stay apart for colour-blind eyes too
COLOURS = {
    "plan": "#0072b2",
    "build": "#56b4e9",
    "submit": "#cc79a7",
    "mask": "#7f5539",
    "wait": "#e4e4e4",
    "commit": "#009e73",
    "output": "#f0e442",
    "forward": "#e69f00",
    "sample": "#d55e00",
}
_OTHER = "#999999"
_HOST, _DEVICE = 1, 0  # heights of the lanes
_LONG_NS = 10_000_000  # windows above it are labelled in milliseconds
_MARGIN = 0.25  # shown around the magnified handover, as a share of its length

Window = tuple[int, int]  # nanoseconds


def save_picture(trace: Trace, steps: int, path: Path) -> None:
    """Draw as a PNG. Raises `ConfigError` when there is no steady state, or the file cannot be written."""
    data = io.BytesIO()
    picture(trace, steps).savefig(data, format="png")
    replace_file(path, [data.getvalue()])


def picture(trace: Trace, steps: int) -> Figure:
    """`steps` steps from the middle of the steady state, above the magnified handover after the middle one of them.

    Raises `ConfigError` when there is no steady state.
    """
    steady = steady_steps(trace)
    first = max(0, (len(steady) - steps) // 2)
    shown = steady[first : first + steps]
    found = measure_overlap(trace)
    figure = Figure(figsize=(12, 5.2), dpi=100, layout="constrained")
    figure.suptitle(
        f"steps of {found.rows} rows, {found.step / 1000:.2f} ms each: device busy {found.busy:.1%} of the time, "
        f"and during {found.overlapped:.0%} of the host's work",
        fontsize=11,
    )
    whole, near = figure.subplots(2, 1)
    _draw_window(whole, trace.phases, _window(trace.phases, shown))
    whole.set_title(f"steps {shown[0]} to {shown[-1]}", loc="left", fontsize=9)
    handover = shown[len(shown) // 2]
    _draw_window(near, trace.phases, _handover(trace.phases, handover))
    near.set_title(f"the host after step {handover}, magnified", loc="left", fontsize=9)
    seen = [name for name in COLOURS if any(phase.name == name for phase in trace.phases)]
    figure.legend(
        handles=[Patch(facecolor=COLOURS[name], edgecolor="#444444", linewidth=0.4, label=name) for name in seen],
        loc="outside lower center",
        ncols=len(seen),
        fontsize=9,
        frameon=False,
    )
    return figure


def _window(phases: Sequence[Phase], steps: Sequence[int]) -> Window:
    """From the first step's forward to the last one's sample."""
    device = [phase for phase in phases if phase.device and steps[0] <= phase.step <= steps[-1]]
    return min(phase.start_ns for phase in device), max(phase.end_ns for phase in device)


def _handover(phases: Sequence[Phase], step: int) -> Window:
    """From the end of the wait for a step to the start of the wait for the next one: all the host's work between."""
    waits = {phase.step: phase for phase in phases if phase.name == "wait"}
    start, end = waits[step].end_ns, waits[step + 1].start_ns
    margin = int(_MARGIN * (end - start))
    return start - margin, end + margin


def _draw_window(axes: Axes, phases: Sequence[Phase], window: Window) -> None:
    """Both lanes, in time since the window's start. A span carries its name and step where they fit."""
    start, end = window
    unit, scale = ("milliseconds", 1e6) if end - start > _LONG_NS else ("microseconds", 1e3)
    width = (end - start) / scale
    for phase in phases:
        if phase.end_ns <= start or phase.start_ns >= end:
            continue
        left, right = max(phase.start_ns, start), min(phase.end_ns, end)
        place, length = (left - start) / scale, (right - left) / scale
        lane = _DEVICE if phase.device else _HOST
        colour = COLOURS.get(phase.name, _OTHER)
        axes.barh(lane, length, left=place, height=0.8, color=colour, edgecolor="#444444", linewidth=0.4)
        if length > width / 12:
            text = f"{phase.name} {phase.step}"
            axes.text(place + length / 2, lane, text, ha="center", va="center", fontsize=8, clip_on=True)
    axes.set_xlim(0, width)
    axes.set_ylim(-0.5, 1.5)
    axes.set_yticks([_HOST, _DEVICE], ["host", "device"])
    axes.set_xlabel(unit, fontsize=8)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
