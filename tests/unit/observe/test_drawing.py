"""The picture of a trace: what is in it and where."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from made_traces import made_trace

pytest.importorskip("matplotlib")

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.observe.drawing import COLOURS, picture, save_picture


def bars(axes: Axes) -> set[tuple[str, str, int, int]]:
    """(phase, lane, start, end) of what is drawn, in nanoseconds since the window's start."""
    names = {colour: name for name, colour in COLOURS.items()}
    lanes = {tick: label.get_text() for tick, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)}
    scale = {"microseconds": 1e3, "milliseconds": 1e6}[axes.get_xlabel()]
    found = set()
    for bar in axes.patches:
        assert isinstance(bar, Rectangle)
        start, end = bar.get_x() * scale, (bar.get_x() + bar.get_width()) * scale
        lane = lanes[round(bar.get_y() + bar.get_height() / 2)]
        found.add((names[to_hex(bar.get_facecolor())], lane, round(start), round(end)))
    return found


def test_steps_lie_side_by_side_with_host_above_device() -> None:
    whole, _ = picture(made_trace(), steps=2).axes
    assert whole.get_title("left") == "steps 7 to 8"
    drawn = bars(whole)
    assert {(name, start, end) for name, lane, start, end in drawn if lane == "device"} == {
        ("forward", 0, 8000),
        ("sample", 8000, 9000),
        ("forward", 10_000, 18_000),
        ("sample", 18_000, 19_000),
    }
    assert {name for name, lane, _, _ in drawn if lane == "host"} == {"plan", "build", "submit", "wait"}
    assert {(start, end) for name, _, start, end in drawn if name == "plan"} == {(500, 900), (10_500, 10_900)}


def test_the_work_between_two_waits_is_magnified() -> None:
    """Step 8's wait ends at 89000 and step 9's begins at 90300; a quarter is added at either end."""
    _, near = picture(made_trace(overlap=False), steps=2).axes
    assert near.get_title("left") == "the host after step 8, magnified"
    first = 89_000 - 325
    assert {(name, start + first) for name, _, start, _ in bars(near) if name in ("plan", "build", "submit")} == {
        ("plan", 89_100),
        ("build", 89_500),
        ("submit", 89_900),
    }


def test_the_legend_names_the_phases_that_occur() -> None:
    (legend,) = picture(made_trace(), steps=4).legends
    assert [text.get_text() for text in legend.get_texts()] == ["plan", "build", "submit", "wait", "forward", "sample"]


def test_the_title_says_what_the_picture_shows() -> None:
    title = picture(made_trace(), steps=4).get_suptitle()
    assert title.startswith("steps of 8 rows, 0.01 ms each: device busy 91.1%")
    assert "100% of the host's work" in title


def test_more_steps_than_there_are_draw_them_all() -> None:
    whole, _ = picture(made_trace(steps=4), steps=99).axes
    assert whole.get_title("left") == "steps 2 to 5"


def test_a_png_is_written(tmp_path: Path) -> None:
    save_picture(made_trace(overlap=False), 4, tmp_path / "steps.png")
    data = (tmp_path / "steps.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (1200, 520)


def test_nothing_is_drawn_without_a_steady_state(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no steady state"):
        save_picture(made_trace(steps=2), 4, tmp_path / "steps.png")
    assert not list(tmp_path.iterdir())
