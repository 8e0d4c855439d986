"""What observers are told adds up to what the engine did."""

from __future__ import annotations

import itertools

import pytest
from engine_kit import Sizes, greedy, make_kit, run

from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.observe.timeline import Timeline


def requests() -> list[object]:
    """More than there are slots, of several chunks, with several answers, without tokens, and a wrong one."""
    lasting = [greedy([9 + i, 10, 11, 12] * 3, f"r{i}", max_tokens=6, n=1 + i % 2) for i in range(4)]
    return [*lasting, greedy([5], "none", max_tokens=0), greedy([], "wrong")]


def served(observers: list[object], overlap: bool = True) -> list[RequestOutput]:
    kit = make_kit(Sizes(slots=2, blocks=9, step_tokens=8, overlap=overlap), observers=observers)
    outputs = run(kit, requests())  # type: ignore[arg-type]
    kit.engine.close()
    return outputs


@pytest.mark.parametrize("overlap", [True, False])
def test_times_of_a_request_follow_each_other(overlap: bool) -> None:
    *lasting, none, _ = served([], overlap)
    for output in lasting:
        times = output.metrics
        assert times is not None
        assert 0 < times.queued <= times.first_token <= times.finished
    assert none.metrics is not None
    assert none.metrics.queued == none.metrics.first_token == none.metrics.finished


def test_metrics_add_up_to_the_outputs() -> None:
    pytest.importorskip("prometheus_client")
    from deepinfer_core.observe.metrics import Metrics

    metrics, timeline = Metrics(), Timeline()
    outputs = served([metrics, timeline])

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"deepinfer_{name}", labels)

    good = [output for output in outputs if output.error is None]
    answers = [answer for output in good for answer in output.outputs]
    assert value("requests_total", outcome="answered") == len(good) == 5
    assert value("requests_total", outcome="failed") == 1
    assert value("prompt_tokens_total") == sum(len(output.prompt_token_ids) for output in good)
    assert value("generated_tokens_total") == sum(len(answer.token_ids) for answer in answers)
    ended = [value("sequences_total", finish_reason=reason) for reason in ("stop", "length")]
    assert sum(filter(None, ended)) == len(answers)
    loads = timeline.trace.loads
    assert value("step_rows_sum") == sum(load.rows for load in loads)
    assert value("step_rows_count") == value("step_seconds_count") == len(loads)
    assert (value("sequences_running"), value("sequences_waiting"), value("slots_free")) == (0, 0, 2)
    blocks = [value("cache_blocks", state=state) for state in ("free", "used", "cached")]
    assert sum(filter(None, blocks)) == 9


def test_spans_of_the_queue_never_overlap_and_lie_within_what_the_host_saw() -> None:
    timeline = Timeline()
    served([timeline])
    device = sorted((p.start_ns, p.end_ns) for p in timeline.trace.phases if p.device)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(device))
    spans = {(phase.name, phase.step): phase for phase in timeline.trace.phases}
    for (name, step), phase in spans.items():
        if name == "forward":
            assert spans["submit", step].start_ns <= phase.start_ns
        if name == "sample":
            assert phase.end_ns <= spans["wait", step].end_ns


class Stumbling:
    """An observer that breaks the promise not to raise."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def _stumble(self, *_: object) -> None:
        self._told.append("something")
        raise ZeroDivisionError

    on_phase = on_step = on_finish = _stumble


def test_an_observer_that_raises_is_told_no_more_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    timeline = Timeline()
    outputs = served([Stumbling(told), timeline])
    assert [output.outputs for output in outputs] == [output.outputs for output in served([])]
    assert told == ["something"]
    assert "the observer 'Stumbling' failed" in caplog.text
    assert timeline.trace.loads
