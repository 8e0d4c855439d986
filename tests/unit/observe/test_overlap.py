"""The summary of a trace, on traces whose numbers are known."""

from __future__ import annotations

import pytest
from made_traces import STATS, made_trace, record

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.interfaces.observer import Phase
from deepinfer_core.observe.overlap import measure_overlap, render, steady_steps
from deepinfer_core.observe.timeline import Timeline
from deepinfer_core.observe.trace import Trace


def test_the_steady_state_is_a_run_of_steps_alike_less_its_edges() -> None:
    assert steady_steps(made_trace(steps=12)) == list(range(4, 12))


def test_of_several_runs_the_one_that_took_longest_counts() -> None:
    timeline = Timeline()
    for step in range(1, 7):
        record(timeline, step, rows=8)
    for step in range(7, 11):
        record(timeline, 10 * step, rows=1)  # no run: there are steps between
        record(timeline, 200 + step, rows=3)
    assert steady_steps(timeline.trace) == [1, 2, 3, 4, 5, 6]
    timeline.on_phase(Phase("sample", 210, 210 * 10_000, 400 * 10_000, device=True))
    assert steady_steps(timeline.trace) == [207, 208, 209, 210]


def test_a_short_run_keeps_its_edges() -> None:
    assert steady_steps(made_trace(steps=6)) == list(range(2, 8))


def test_steps_that_were_not_completed_do_not_count() -> None:
    timeline = Timeline()
    for step in range(1, 8):
        record(timeline, step, rows=8)
    timeline.on_phase(Phase("plan", 8, 70_000, 70_100, device=False))
    assert steady_steps(timeline.trace) == list(range(1, 8))


def test_a_gap_in_the_steps_ends_a_run() -> None:
    timeline = Timeline()
    for step in (1, 2, 3, 5, 6, 7, 8):
        record(timeline, step, rows=8)
    assert steady_steps(timeline.trace) == [5, 6, 7, 8]


@pytest.mark.parametrize("trace", [Trace([]), made_trace(steps=3)])
def test_without_a_steady_state_there_is_no_summary(trace: Trace) -> None:
    with pytest.raises(ConfigError, match="there is no steady state"):
        measure_overlap(trace)


def test_times_are_microseconds_a_step() -> None:
    found = measure_overlap(made_trace())
    assert (found.steps, found.rows, found.step) == (8, 8, 10.0)
    assert found.host == {"plan": 0.4, "build": 0.4, "submit": 0.05, "wait": 7.3}
    assert found.device == {"forward": 8.0, "sample": 1.0}
    assert (found.gap, found.gap_p90) == (1.0, 1.0)
    assert found.busy == pytest.approx((8 * 9000) / (8 * 9000 + 7 * 1000))


def test_a_phase_that_comes_twice_in_a_step_counts_as_its_sum_and_a_rare_one_as_none() -> None:
    timeline = Timeline()
    for step in range(1, 8):
        record(timeline, step, rows=8)
        timeline.on_phase(Phase("submit", step, step * 10_000, step * 10_000 + 50, device=False))
    timeline.on_phase(Phase("mask", 4, 40_000, 49_000, device=False))
    host = measure_overlap(timeline.trace).host
    assert (host["submit"], host["mask"]) == (0.1, 0.0)


def test_host_work_beside_the_device_is_overlapped_and_waiting_is_no_work() -> None:
    assert measure_overlap(made_trace(overlap=True)).overlapped == 1.0
    assert measure_overlap(made_trace(overlap=False)).overlapped == 0.0


def test_work_that_lies_half_beside_the_device_counts_by_half() -> None:
    timeline = Timeline()
    for step in range(1, 6):
        start = step * 10_000
        timeline.on_phase(Phase("build", step, start - 2000, start, device=False))  # the device rests from -1000 on
        timeline.on_phase(Phase("wait", step, start, start + 9000, device=False))
        timeline.on_phase(Phase("forward", step, start, start + 8000, device=True))
        timeline.on_phase(Phase("sample", step, start + 8000, start + 9000, device=True))
        timeline.on_step(step, 1, STATS)
    assert measure_overlap(timeline.trace).overlapped == pytest.approx(4 * 1000 / (5 * 2000))


def test_the_table_names_every_phase_and_the_overlap() -> None:
    text = render(measure_overlap(made_trace()))
    for word in ("8 steps of 8 rows", "plan", "wait", "forward", "100% of it while the device was busy", "1 us"):
        assert word in text
