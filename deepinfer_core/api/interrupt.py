"""Ctrl-C and a polite kill: between two steps rather than inside one, so that the engine stays usable, and, where a
run says so, after the requests in flight."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Self

_OURS: Mapping[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
_STDERR = 2
_NOTICE = b"\nstopping: the requests in flight are finished first; a second Ctrl-C drops them\n"


class StopSignals:
    """While it is entered, SIGINT and SIGTERM raise `KeyboardInterrupt` at once, but for what the blocks below put off.

    Only handlers that a program starts with are replaced, and only in the main thread: whoever set another keeps it.
    """

    def __init__(self, numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM)) -> None:
        self.asked = False  # a signal came within `finishing`
        self._numbers = numbers
        self._before: dict[int, Any] = {}
        self._finishing = self._held = self._pending = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                if signal.getsignal(number) == _OURS[number]:
                    self._before[number] = signal.signal(number, self)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        if self._finishing and not self.asked:
            self.asked = True
            with suppress(OSError):
                os.write(_STDERR, _NOTICE)  # print may be what was interrupted
        elif self._held and not self._pending:
            self._pending = True
        else:
            raise KeyboardInterrupt

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Within, the first signal only sets `asked`."""
        self._finishing = True
        try:
            yield
        finally:
            self._finishing = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within, a signal that would raise waits for the block's end; one more raises at once."""
        if self._held:
            yield
            return
        self._held = True
        try:
            yield
        finally:
            self._held = False
            pending, self._pending = self._pending, False
        if pending:
            raise KeyboardInterrupt


@contextmanager
def interrupt_held() -> Iterator[None]:
    """Within, the first SIGINT waits for the block's end; a second one interrupts at once. Where `StopSignals` are
    entered, theirs is the first that would raise."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, StopSignals):
        with handler.held():
            yield
        return
    with StopSignals((signal.SIGINT,)) as signals, signals.held():
        yield
