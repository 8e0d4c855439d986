"""Ctrl-C between two steps rather than inside one, so that the engine stays usable after it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupt_held() -> Iterator[None]:
    """Within, the first SIGINT waits for the block's end; a second one interrupts at once.

    Only Python's own handler is replaced, and only in the main thread: whoever set another keeps it.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        if held:
            signal.default_int_handler(number, frame)
        held.append(number)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if held:
        raise KeyboardInterrupt
