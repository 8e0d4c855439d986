"""An observer that counts for Prometheus. Who gets to read the counts is in `exporters.py`, what they mean in
docs/metrics.md.

Needs prometheus-client, which the extra `metrics` installs: nothing imports this module before it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from deepinfer_core.api.outputs import RequestMetrics, RequestOutput
    from deepinfer_core.interfaces.observer import Phase
    from deepinfer_core.interfaces.scheduler import SchedulerStats

# Upper bounds of buckets
_STEP_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_WAIT_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_ROWS = tuple(1 << power for power in range(14))

# Label values that exist from the start, so that a rate over them is never missing
_OUTCOMES = ("answered", "aborted", "failed")
_FINISH_REASONS = ("stop", "length", "abort")
_HOST_PHASES = ("plan", "build", "submit", "mask", "wait", "commit", "output")
_DEVICE_PHASES = ("forward", "sample")


class Metrics:
    """Fills `registry`. The engine's thread calls it; any thread may read the registry meanwhile."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._requests = _Requests(self.registry)
        self._steps = _Steps(self.registry)
        self._scheduler = _Scheduler()
        self.registry.register(self._scheduler)

    def on_phase(self, phase: Phase) -> None:
        self._steps.add_phase(phase)

    def on_step(self, step: int, rows: int, stats: SchedulerStats) -> None:
        self._steps.rows.observe(rows)
        self._scheduler.stats = stats

    def on_finish(self, output: RequestOutput) -> None:
        self._requests.count(output)


class _Steps:
    """Rows and times of steps."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.rows = Histogram(
            "deepinfer_step_rows", "Rows of a step, one for each token computed", buckets=_ROWS, registry=registry
        )
        self._seconds = Histogram(
            "deepinfer_step_seconds",
            "From the start of a step's forward to the end of its sampling",
            buckets=_STEP_SECONDS,
            registry=registry,
        )
        self._host = Counter("deepinfer_host_seconds", "Host time in a phase of the step", ["phase"], registry=registry)
        self._device = Counter("deepinfer_device_seconds", "Busy time of the device", ["phase"], registry=registry)
        self._of_host = {name: self._host.labels(name) for name in _HOST_PHASES}
        self._of_device = {name: self._device.labels(name) for name in _DEVICE_PHASES}
        self._forward_ns = 0  # the device reports a step's forward, then its sampling

    def add_phase(self, phase: Phase) -> None:
        seconds = (self._of_device if phase.device else self._of_host).get(phase.name)
        if seconds is None:
            seconds = (self._device if phase.device else self._host).labels(phase.name)
        seconds.inc((phase.end_ns - phase.start_ns) / 1e9)
        if phase.device and phase.name == "forward":
            self._forward_ns = phase.start_ns
        elif phase.device:
            self._seconds.observe((phase.end_ns - self._forward_ns) / 1e9)


class _Requests:
    """Counts, tokens and times of requests that ended."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"deepinfer_{name}", text, registry=registry)

        def seconds(name: str, text: str, buckets: tuple[float, ...] = _WAIT_SECONDS) -> Histogram:
            return Histogram(f"deepinfer_{name}_seconds", text, buckets=buckets, registry=registry)

        self._outcomes = Counter("deepinfer_requests", "Requests that ended", ["outcome"], registry=registry)
        self._sequences = Counter("deepinfer_sequences", "Answers that ended", ["finish_reason"], registry=registry)
        for name in _OUTCOMES:
            self._outcomes.labels(name)
        for name in _FINISH_REASONS:
            self._sequences.labels(name)
        self._errors = Counter("deepinfer_request_errors", "Requests that failed", ["code"], registry=registry)
        self._prompt = counter("prompt_tokens", "Prompt tokens of requests that ended without an error")
        self._cached = counter("cached_prompt_tokens", "Prompt tokens that were not computed thanks to a prefix hit")
        self._generated = counter("generated_tokens", "Tokens of answers that ended")
        self._queue = seconds("request_queue", "From a request's arrival to a slot")
        self._first = seconds("first_token", "From a request's arrival to its first token")
        self._whole = seconds("request", "From a request's arrival to its end")
        self._between = seconds("inter_token", "Mean time between two tokens of a request", _STEP_SECONDS)

    def count(self, output: RequestOutput) -> None:
        if output.error is not None:
            self._outcomes.labels("failed").inc()
            self._errors.labels(output.error.code).inc()
            return
        reasons = [answer.finish_reason for answer in output.outputs]
        self._outcomes.labels("aborted" if "abort" in reasons else "answered").inc()
        for reason in reasons:
            self._sequences.labels(reason).inc()
        self._prompt.inc(len(output.prompt_token_ids))
        self._cached.inc(output.num_cached_tokens)
        self._generated.inc(sum(len(answer.token_ids) for answer in output.outputs))
        if output.metrics is not None:
            self._time(output.metrics, max((len(answer.token_ids) for answer in output.outputs), default=0))

    def _time(self, metrics: RequestMetrics, longest: int) -> None:
        """`longest`: tokens of the longest answer, whose end is the request's."""
        self._queue.observe(metrics.queued)
        self._whole.observe(metrics.finished)
        if longest > 0:
            self._first.observe(metrics.first_token)
        if longest > 1:
            self._between.observe((metrics.finished - metrics.first_token) / (longest - 1))


class _Scheduler(Collector):
    """The scheduler's own counts after its last step, read when somebody asks. Zero before the first."""

    def __init__(self) -> None:
        self.stats: SchedulerStats | None = None

    def collect(self) -> Iterator[Metric]:
        stats = self.stats  # all samples of one moment
        blocks = GaugeMetricFamily("deepinfer_cache_blocks", "Blocks of the cache", labels=["state"])
        for state in ("free", "used", "cached"):
            blocks.add_metric([state], _count(stats, f"{state}_blocks"))
        yield blocks
        for gauge, text, name in (
            ("sequences_running", "Answers that have a slot", "running"),
            ("sequences_waiting", "Answers that wait for a slot", "waiting"),
            ("slots_free", "Slots that no answer has", "free_slots"),
        ):
            yield GaugeMetricFamily(f"deepinfer_{gauge}", text, _count(stats, name))
        for counter, text, name in (
            ("preemptions", "Answers that were put back to waiting", "preemptions"),
            ("prefix_cache_queried_tokens", "Tokens that a prefix hit could have covered", "queried_tokens"),
            ("prefix_cache_hit_tokens", "Tokens in blocks that a prefix hit shared", "hit_tokens"),
            ("prefix_cache_replayed_tokens", "Tokens of prefix hits that were computed again", "replayed_tokens"),
            ("prefix_cache_evictions", "Cached blocks that made room for others", "evictions"),
        ):
            yield CounterMetricFamily(f"deepinfer_{counter}", text, _count(stats, name))


def _count(stats: SchedulerStats | None, name: str) -> int:
    return 0 if stats is None else getattr(stats, name)
