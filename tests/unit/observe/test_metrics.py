"""What is counted, and that docs/metrics.md lists exactly that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry

from deepinfer_core.api.errors import PromptTooLong
from deepinfer_core.api.outputs import CompletionOutput, FinishReason, RequestMetrics, RequestOutput
from deepinfer_core.interfaces.observer import Observer, Phase
from deepinfer_core.interfaces.scheduler import SchedulerStats
from deepinfer_core.observe.metrics import Metrics

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
STATS = SchedulerStats(
    waiting=2,
    running=5,
    free_blocks=3,
    used_blocks=4,
    cached_blocks=1,
    free_slots=6,
    preemptions=7,
    queried_tokens=100,
    hit_tokens=64,
    replayed_tokens=10,
    evictions=8,
)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"deepinfer_{name}", labels)


def answered(*answers: tuple[int, FinishReason], cached: int = 0) -> RequestOutput:
    """A request of a prompt of 10 tokens; (tokens, reason) of each answer. Queued for 1 s, first token after 2, end
    after 4."""
    return RequestOutput(
        "r",
        None,
        tuple(range(10)),
        tuple(CompletionOutput(index, "", (1,) * tokens, reason) for index, (tokens, reason) in enumerate(answers)),
        num_cached_tokens=cached,
        metrics=RequestMetrics(first_token=2.0, finished=4.0, queued=1.0),
    )


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def test_requests_are_counted_by_outcome_and_answers_by_finish_reason(metrics: Metrics) -> None:
    metrics.on_finish(answered((5, "stop"), (3, "length")))
    metrics.on_finish(answered((2, "length")))
    metrics.on_finish(answered((1, "stop"), (0, "abort")))
    metrics.on_finish(RequestOutput("bad", None, (), error=PromptTooLong("too long")))
    outcomes = [value(metrics, "requests_total", outcome=name) for name in ("answered", "aborted", "failed")]
    assert outcomes == [2, 1, 1]
    reasons = [value(metrics, "sequences_total", finish_reason=name) for name in ("stop", "length", "abort")]
    assert reasons == [2, 2, 1]
    assert value(metrics, "request_errors_total", code="prompt_too_long") == 1


def test_tokens_of_requests_that_ended_well(metrics: Metrics) -> None:
    metrics.on_finish(answered((5, "stop"), (3, "length"), cached=8))
    metrics.on_finish(RequestOutput("bad", None, (1, 2, 3), error=PromptTooLong("too long")))
    names = ("prompt_tokens_total", "cached_prompt_tokens_total", "generated_tokens_total")
    assert [value(metrics, name) for name in names] == [10, 8, 8]


def test_times_of_requests(metrics: Metrics) -> None:
    metrics.on_finish(answered((5, "stop"), (3, "length")))
    sums = {name: value(metrics, f"{name}_seconds_sum") for name in ("request_queue", "first_token", "request")}
    assert sums == {"request_queue": 1.0, "first_token": 2.0, "request": 4.0}
    assert value(metrics, "inter_token_seconds_sum") == 0.5  # four steps after the first token of the longest answer
    assert value(metrics, "request_queue_seconds_bucket", le="1.0") == 1
    assert value(metrics, "request_queue_seconds_bucket", le="0.5") == 0


@pytest.mark.parametrize(("tokens", "first", "between"), [(0, 0, 0), (1, 1, 0), (2, 1, 1)])
def test_times_that_an_answer_does_not_have_are_not_counted(
    metrics: Metrics, tokens: int, first: int, between: int
) -> None:
    metrics.on_finish(answered((tokens, "length")))
    assert value(metrics, "first_token_seconds_count") == first
    assert value(metrics, "inter_token_seconds_count") == between


def test_steps(metrics: Metrics) -> None:
    watched: Observer = metrics
    watched.on_phase(Phase("plan", 1, 0, 250_000_000, device=False))
    watched.on_phase(Phase("plan", 2, 0, 250_000_000, device=False))
    watched.on_phase(Phase("forward", 1, 1_000_000_000, 2_000_000_000, device=True))
    watched.on_phase(Phase("sample", 1, 2_500_000_000, 3_000_000_000, device=True))
    watched.on_step(1, 40, STATS)
    assert value(metrics, "host_seconds_total", phase="plan") == 0.5
    assert value(metrics, "device_seconds_total", phase="forward") == 1.0
    assert value(metrics, "device_seconds_total", phase="sample") == 0.5
    assert (value(metrics, "step_seconds_sum"), value(metrics, "step_seconds_count")) == (2.0, 1)
    assert (value(metrics, "step_rows_sum"), value(metrics, "step_rows_count")) == (40, 1)
    assert value(metrics, "step_rows_bucket", le="32.0") == 0


def test_a_phase_that_is_not_known_yet_is_counted_too(metrics: Metrics) -> None:
    metrics.on_phase(Phase("draft", 1, 0, 1_000_000_000, device=False))
    assert value(metrics, "host_seconds_total", phase="draft") == 1.0


def test_the_scheduler_speaks_for_itself(metrics: Metrics) -> None:
    metrics.on_step(1, 1, STATS)
    assert [value(metrics, "cache_blocks", state=state) for state in ("free", "used", "cached")] == [3, 4, 1]
    assert [value(metrics, name) for name in ("sequences_running", "sequences_waiting", "slots_free")] == [5, 2, 6]
    prefix = ("queried_tokens", "hit_tokens", "replayed_tokens", "evictions")
    assert [value(metrics, f"prefix_cache_{name}_total") for name in prefix] == [100, 64, 10, 8]
    assert value(metrics, "preemptions_total") == 7


def test_everything_but_error_codes_is_there_from_the_start(metrics: Metrics) -> None:
    """A rate over a series that begins at one misses the first."""
    empty = [family.name for family in metrics.registry.collect() if not family.samples]
    assert empty == ["deepinfer_request_errors"]
    assert value(metrics, "requests_total", outcome="failed") == 0
    assert value(metrics, "preemptions_total") == 0


def test_two_engines_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.on_finish(answered((1, "stop")))
    assert value(other, "requests_total", outcome="answered") == 0


def test_names_carry_their_units(metrics: Metrics) -> None:
    for name, (kind, unit, _) in in_registry(metrics.registry).items():
        assert re.fullmatch(r"deepinfer_[a-z_]+[a-z]", name)
        assert name.endswith("_total") == (kind == "counter")
        if unit in ("seconds", "tokens", "rows"):
            assert name.removesuffix("_total").endswith(unit)


def in_registry(registry: CollectorRegistry) -> dict[str, tuple[str, str, frozenset[str]]]:
    """name -> type, unit, labels."""
    found = {}
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = frozenset(label for sample in family.samples for label in sample.labels) - {"le"}
        unit = family.name.rsplit("_", 1)[-1]
        found[name] = (family.type, unit, labels)
    return found


def test_the_page_lists_what_there_is_and_nothing_else(metrics: Metrics) -> None:
    metrics.on_finish(RequestOutput("bad", None, (), error=PromptTooLong("too long")))
    rows = re.findall(r"^\| `(deepinfer_\w+)` \| (\w+) \| (\w+) \| (.*?) \| \S.* \|$", DOCS.read_text(), re.MULTILINE)
    listed = {name: (kind, unit, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, unit, labels in rows}
    assert len(listed) == len(rows)
    there = in_registry(metrics.registry)
    assert listed.keys() == there.keys()
    for name, (kind, unit, labels) in there.items():
        assert (name, *listed[name][::2]) == (name, kind, labels)
        if unit in ("seconds", "tokens", "rows", "blocks"):
            assert (name, listed[name][1]) == (name, unit)
