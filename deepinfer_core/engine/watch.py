"""Telling observers what happens. Without observers nothing is recorded; one that raises is told no more."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from deepinfer_core.interfaces.observer import Observer, Phase

if TYPE_CHECKING:
    from deepinfer_core.api.outputs import RequestOutput
    from deepinfer_core.engine.runner import Span
    from deepinfer_core.interfaces.scheduler import Scheduler


logger = logging.getLogger(__name__)


class Watch:
    """All observers as one. Times are time.perf_counter_ns()."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = list(observers)

    def phase(self, name: str, step: int, start_ns: int) -> None:
        """A host phase that began at `start_ns` and ends now."""
        if self._observers:
            self._tell(Phase(name, step, start_ns, time.perf_counter_ns(), device=False))

    def device(self, step: int, spans: Iterable[Span]) -> None:
        """What a step did on the queue."""
        if self._observers:
            for span in spans:
                self._tell(Phase(span.name, step, span.start_ns, span.end_ns, device=True))

    def step(self, step: int, rows: int, scheduler: Scheduler) -> None:
        """A step was committed."""
        if self._observers:
            stats = scheduler.stats()
            self._each(lambda observer: observer.on_step(step, rows, stats))

    def finish(self, output: RequestOutput) -> None:
        self._each(lambda observer: observer.on_finish(output))

    def _tell(self, phase: Phase) -> None:
        self._each(lambda observer: observer.on_phase(phase))

    def _each(self, tell: Callable[[Observer], None]) -> None:
        for observer in self._observers[:]:
            try:
                tell(observer)
            except Exception:
                logger.exception("the observer %r failed and is told no more", type(observer).__name__)
                self._observers.remove(observer)
