"""The search for stop strings in a text that grows. What a hit means for the answer is decided in `output.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopHit:
    """A stop string that was completed: characters `start` up to `end` of the whole text."""

    stop: str
    start: int
    end: int


class StopSearch:
    """The text of one answer, and the first stop string that is completed where stops count.

    Of several stops the one that is completed first wins, and of those completed by one character the longest: the
    outcome depends on the characters alone, not on how tokens cut the text. Each character is searched once.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._reach = max(map(len, self._stops), default=1) - 1
        self._parts: list[str] = []
        self._length = 0
        self._tail = ""  # the last characters, as many as an unfinished stop string may have

    @property
    def text(self) -> str:
        """Everything pushed so far."""
        return "".join(self._parts)

    def push(self, text: str, counts: bool) -> StopHit | None:
        """Append text; with `counts`, the first stop string that ends within it."""
        window = self._tail + text
        base = self._length - len(self._tail)  # where the window begins in the whole text
        hit = self._first(window, len(self._tail), base) if counts and text else None
        self._parts.append(text)
        self._length += len(text)
        self._tail = window[-self._reach :] if self._reach else ""
        return hit

    def _first(self, window: str, old: int, base: int) -> StopHit | None:
        hits = []
        for stop in self._stops:
            start = window.find(stop, max(0, old - len(stop) + 1))
            if start >= 0:
                hits.append(StopHit(stop, base + start, base + start + len(stop)))
        return min(hits, key=lambda hit: (hit.end, hit.start), default=None)
