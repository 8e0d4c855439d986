"""Ways out for metrics, both context managers: a text file for a collector to pick up, and an HTTP port to scrape."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.observe.files import replace_file

INTERVAL = 10.0  # seconds between two writings of the file
ADDRESS = "127.0.0.1"  # metrics name no prompt, but are nobody else's business

logger = logging.getLogger(__name__)


class MetricsFile:
    """Keeps a file with the latest metrics, replaced whole every `INTERVAL` seconds and at the end."""

    def __init__(self, path: Path, registry: CollectorRegistry, stop: Event | None = None) -> None:
        """Writes at once, so that a place that cannot be written raises its `ConfigError` before anything is loaded.

        `stop`: set at the end; its `wait` is what passes the time between two writings.
        """
        self._path = path
        self._registry = registry
        self._stop = Event() if stop is None else stop
        self._failing = False
        self.write()
        self._thread = Thread(target=self._keep_writing, name="deepinfer-metrics", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the last state. Raises `ConfigError` when that fails, unless an error is on its way already."""
        self._stop.set()
        self._thread.join()
        try:
            self.write()
        except ConfigError as failure:
            if error is None:
                raise
            logger.warning("%s", failure)

    def write(self) -> None:
        """Write the file now. Raises `ConfigError`."""
        replace_file(self._path, [generate_latest(self._registry)])

    def _keep_writing(self) -> None:
        while not self._stop.wait(INTERVAL):
            try:
                self.write()
                self._failing = False
            except ConfigError as error:
                if not self._failing:  # said once until it works again
                    logger.warning("%s: the metrics in it are old", error)
                self._failing = True


class MetricsServer:
    """Serves GET /metrics to this machine, from threads of its own."""

    def __init__(self, port: int, registry: CollectorRegistry) -> None:
        """Port 0 takes a free one. Raises `ConfigError` when the port cannot be had."""
        try:
            self._server, self._thread = start_http_server(port, ADDRESS, registry)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served on port {port} of {ADDRESS}: {error.strerror}; give another port, or 0 for "
                "any that is free"
            ) from error
        self.url = f"http://{ADDRESS}:{self._server.server_port}/metrics"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
