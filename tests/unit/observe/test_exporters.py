"""The metrics file and the metrics port."""

from __future__ import annotations

import logging
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.observe.exporters import ADDRESS, MetricsFile, MetricsServer


class Turns:
    """Stands in for the event: its wait ends at once, `turns` times, and counts on."""

    def __init__(self, turns: int, gauge: Gauge) -> None:
        self._left = turns
        self._gauge = gauge

    def wait(self, seconds: float) -> bool:
        self._left -= 1
        self._gauge.inc()
        return self._left < 0

    def set(self) -> None:
        self._left = 0


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def gauge(registry: CollectorRegistry) -> Gauge:
    return Gauge("height", "of something", registry=registry)


def values(text: str) -> dict[str, float]:
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}


def test_the_file_is_there_at_once_and_has_the_last_state_at_the_end(
    tmp_path: Path, registry: CollectorRegistry, gauge: Gauge
) -> None:
    path = tmp_path / "engine.prom"
    with MetricsFile(path, registry):
        assert values(path.read_text()) == {"height": 0}
        gauge.set(3)
    assert values(path.read_text()) == {"height": 3}
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_written_again_and_again(
    tmp_path: Path, registry: CollectorRegistry, gauge: Gauge, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[float] = []
    monkeypatch.setattr(MetricsFile, "write", lambda self: written.append(gauge._value.get()))
    file = MetricsFile(tmp_path / "engine.prom", registry, Turns(3, gauge))  # type: ignore[arg-type]
    file._thread.join()
    assert written == [0, 1, 2, 3]


def test_a_failure_in_between_is_said_once_and_ends_nothing(
    tmp_path: Path, registry: CollectorRegistry, gauge: Gauge, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "folder" / "engine.prom"
    path.parent.mkdir()

    class Vanishing(Turns):
        def wait(self, seconds: float) -> bool:
            if path.exists():
                path.unlink()
                path.parent.rmdir()
            return super().wait(seconds)

    file = MetricsFile(path, registry, Vanishing(3, gauge))  # type: ignore[arg-type]
    file._thread.join()
    (said,) = caplog.messages
    assert "engine.prom cannot be written: No such file or directory: the metrics in it are old" in said
    path.parent.mkdir()
    with file:
        pass
    assert values(path.read_text()) == {"height": 4}


def test_a_place_that_cannot_be_written_is_said_at_once(tmp_path: Path, registry: CollectorRegistry) -> None:
    with pytest.raises(ConfigError, match="engine.prom cannot be written"):
        MetricsFile(tmp_path / "nowhere" / "engine.prom", registry)


def lose_folder(path: Path, error: Exception | None = None) -> None:
    path.unlink()
    path.parent.rmdir()
    if error is not None:
        raise error


def test_a_failure_at_the_end_is_an_error(tmp_path: Path, registry: CollectorRegistry) -> None:
    path = tmp_path / "folder" / "engine.prom"
    path.parent.mkdir()
    with pytest.raises(ConfigError, match="cannot be written"), MetricsFile(path, registry):
        lose_folder(path)


def test_a_failure_at_the_end_hides_no_other_error(
    tmp_path: Path, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "folder" / "engine.prom"
    path.parent.mkdir()
    with caplog.at_level(logging.WARNING), pytest.raises(ZeroDivisionError), MetricsFile(path, registry):
        lose_folder(path, ZeroDivisionError())
    assert "cannot be written" in caplog.text


def test_a_scrape(registry: CollectorRegistry, gauge: Gauge) -> None:
    with MetricsServer(0, registry) as server:
        gauge.set(2)
        assert server.url.startswith(f"http://{ADDRESS}:")
        with urllib.request.urlopen(server.url) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert values(answer.read().decode()) == {"height": 2}
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.url)


def test_a_port_in_use_is_said(registry: CollectorRegistry) -> None:
    with socket.create_server((ADDRESS, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"metrics cannot be served on port {port} of {ADDRESS}: .*use"):
            MetricsServer(port, registry)
