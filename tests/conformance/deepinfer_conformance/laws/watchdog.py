"""Waiting with a limit, so that a device that hangs is a failed test and not a hung suite."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

PATIENCE = 60.0  # seconds after which something that takes milliseconds is taken for hung


class Hung(AssertionError):
    """What was waited for did not come."""


class Outcome(Generic[T]):
    """What a function gave on a thread of its own."""

    def __init__(self, fn: Callable[[], T]) -> None:
        self._fn = fn
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def pending(self, seconds: float) -> bool:
        """Whether it is still at it after so many seconds at most."""
        self._thread.join(seconds)
        return self._thread.is_alive()

    def get(self, what: str, seconds: float = PATIENCE) -> T:
        """Its value, or what it raised. Raises `Hung` when it does not end in time."""
        if self.pending(seconds):
            raise Hung(f"{what} did not end within {seconds:g} seconds")
        if self._error is not None:
            raise self._error
        return self._value[0]

    def _run(self) -> None:
        try:
            self._value.append(self._fn())
        except BaseException as error:
            self._error = error


def within(what: str, fn: Callable[[], T], seconds: float = PATIENCE) -> T:
    """What `fn` gives. Raises `Hung`, naming `what`, when it does not come back."""
    return Outcome(fn).get(what, seconds)
