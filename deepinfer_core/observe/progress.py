"""How far a run is: a bar on a terminal, a plain line now and then elsewhere. Leaving one's context finishes it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Self, TextIO

from deepinfer_core.observe import log

LINE_SECONDS = 10.0  # between two plain lines


class BarProgress:
    """A tqdm bar with tokens a second beside it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: Any = None
        self._tokens = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def start(self, total: int, done: int) -> None:
        """`total` requests in all, `done` of them by an earlier run."""
        from tqdm import tqdm  # type: ignore[import-untyped]

        self._bar = tqdm(total=total, initial=done, unit="req", file=self._stream, dynamic_ncols=True)

    def ready(self) -> None:
        """The model is loaded: rates count from now."""
        self._bar.unpause()

    def advance(self, tokens: int) -> None:
        """One more request is done, with an answer of so many tokens."""
        self._tokens += tokens
        seconds = self._bar.format_dict["elapsed"]
        if seconds > 0:
            self._bar.set_postfix_str(f"{self._tokens / seconds:.0f} tok/s", refresh=False)
        self._bar.update()


class LineProgress:
    """Plain lines, never a carriage return: for logs. The first and the last state are always shown."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._total = self._done = self._new = self._tokens = 0
        self._started = self._shown = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._new:
            self._show()

    def start(self, total: int, done: int) -> None:
        """`total` requests in all, `done` of them by an earlier run."""
        self._total, self._done = total, done
        self._started = self._clock()
        self._show()

    def ready(self) -> None:
        """The model is loaded: rates count from now."""
        self._started = self._shown = self._clock()

    def advance(self, tokens: int) -> None:
        """One more request is done, with an answer of so many tokens."""
        self._done += 1
        self._new += 1
        self._tokens += tokens
        if self._clock() - self._shown >= LINE_SECONDS:
            self._show()

    def _show(self) -> None:
        self._shown = self._clock()
        seconds = self._shown - self._started
        line = f"{self._done}/{self._total} requests"
        if self._new and seconds > 0:
            left = (self._total - self._done) * seconds / self._new
            line += f", {self._tokens / seconds:.0f} tok/s, {duration(seconds)} gone, {duration(left)} left"
        self._say(line)

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class LogProgress(LineProgress):
    """The same lines as records, where standard error carries JSON."""

    def _say(self, line: str) -> None:
        log.tell(line)


class NoProgress:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def start(self, total: int, done: int) -> None:
        """Nothing is shown."""

    def ready(self) -> None:
        """Nothing is shown."""

    def advance(self, tokens: int) -> None:
        """Nothing is shown."""


def make_progress(stream: TextIO | None = None) -> BarProgress | LineProgress:
    """What suits the stream (default: standard error)."""
    shown = sys.stderr if stream is None else stream
    if stream is None and log.is_json():
        return LogProgress(shown)
    return BarProgress(shown) if shown.isatty() else LineProgress(shown)


def duration(seconds: float) -> str:
    """`75.2` as `1:15`, `3661` as `1:01:01`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
