"""The cost of watching is measured for each kind of observer. How much it is, is not asserted."""

from __future__ import annotations

import pytest

from deepinfer_core.bench import observers
from deepinfer_core.bench.observers import HOST_PHASES, measure_observers, render


def test_every_kind_is_measured() -> None:
    pytest.importorskip("prometheus_client")
    found = measure_observers(steps=20)
    assert [cost.observers for cost in found] == ["nobody", "timeline", "metrics"]
    assert all(cost.steps == 20 and cost.step > 0 for cost in found)
    assert [line.split()[0] for line in render(found).splitlines()] == ["watching", "nobody", "timeline", "metrics"]


def test_metrics_are_left_out_where_they_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "find_spec", lambda name: None)
    assert [cost.observers for cost in measure_observers(steps=2)] == ["nobody", "timeline"]


def test_an_observer_is_told_of_whole_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []

    class Kept(observers.Timeline):
        def __init__(self) -> None:
            super().__init__()
            kept.append(self)

    monkeypatch.setattr(observers, "Timeline", Kept)
    measure_observers(steps=3)
    trace = kept[0].trace
    assert [phase.name for phase in trace.phases] == 3 * [*HOST_PHASES, "forward", "sample"]
    assert {load.running for load in trace.loads} == {observers.RUNNING}
