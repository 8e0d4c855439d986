"""Options that watch a run, and the observers they make: a trace file, a metrics file, a metrics port."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.observe import log

if TYPE_CHECKING:
    from deepinfer_core.interfaces.observer import Observer
    from deepinfer_core.observe.metrics import Metrics
    from deepinfer_core.observe.timeline import Timeline

logger = logging.getLogger(__name__)


def add_watching_options(parser: ArgumentParser) -> None:
    """--timeline, --metrics and --metrics-port."""
    group = parser.add_argument_group("watching", "see docs/timeline.md and docs/metrics.md")
    group.add_argument("--timeline", type=Path, metavar="FILE", help="write a trace of host and device for Perfetto")
    group.add_argument("--metrics", type=Path, metavar="FILE", help="keep Prometheus metrics in a text file")
    group.add_argument("--metrics-port", type=_port, metavar="PORT", help="serve them to this machine (0: a free port)")


@contextmanager
def watching(args: Namespace) -> Iterator[tuple[Observer, ...]]:
    """What the options ask for, as observers of an engine. Files are complete when the context ends, however it does.

    Raises `ConfigError` at its start for a file or port that cannot be had, and for a file that has another use.
    """
    _refuse_used_files(args)
    observers: list[Observer] = []
    with ExitStack() as stack:
        if args.timeline is not None:
            observers.append(stack.enter_context(recording(args.timeline)))
        if args.metrics is not None or args.metrics_port is not None:
            observers.append(stack.enter_context(_counting(args)))
        yield tuple(observers)


@contextmanager
def recording(path: Path) -> Iterator[Timeline]:
    """A timeline whose trace is written at the end. An error that is on its way is not hidden by a failure to write."""
    from deepinfer_core.observe.files import check_target
    from deepinfer_core.observe.timeline import Timeline

    check_target(path)
    timeline = Timeline()
    try:
        yield timeline
    except BaseException:
        try:
            timeline.write(path)
        except ConfigError as failure:
            logger.warning("%s", failure)
        raise
    timeline.write(path)
    if timeline.dropped:
        log.tell(f"{path} is full: its last {timeline.dropped} events were left out", logging.WARNING)


@contextmanager
def _counting(args: Namespace) -> Iterator[Metrics]:
    from deepinfer_core.observe.extras import require

    require("prometheus_client", "metrics", "--metrics" if args.metrics else "--metrics-port")
    import prometheus_client

    from deepinfer_core.observe.exporters import MetricsFile, MetricsServer
    from deepinfer_core.observe.metrics import Metrics

    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each counter
    metrics = Metrics()
    with ExitStack() as stack:
        if args.metrics_port is not None:
            server = stack.enter_context(MetricsServer(args.metrics_port, metrics.registry))
            log.tell(f"metrics are served at {server.url}")
        if args.metrics is not None:
            stack.enter_context(MetricsFile(args.metrics, metrics.registry))
        yield metrics


def _refuse_used_files(args: Namespace) -> None:
    used: dict[Path, str] = {}
    if hasattr(args, "output"):  # the one command with files of its own
        from deepinfer_core.batchio.manifest import manifest_path
        from deepinfer_core.batchio.writer import side_path

        used = {one(args.output).resolve(): "the output's" for one in (Path, side_path, manifest_path)}
        used[args.input.resolve()] = "the input"
    for name, path in (("--timeline", args.timeline), ("--metrics", args.metrics)):
        if path is not None and (other := used.setdefault(path.resolve(), name)) != name:
            raise ConfigError(f"{name} = {path} is {other} too: give it a file of its own")


def _port(text: str) -> int:
    if not text.isdecimal() or len(text) > 5 or int(text) > 65535:
        raise ArgumentTypeError(f"{text!r} is not allowed: give a port from 0 to 65535")
    return int(text)
