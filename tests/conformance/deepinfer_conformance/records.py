"""What a test notes for the report card. Notes travel as pytest's user properties; none passes or fails a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

PROPERTY = "deepinfer_conformance"
KINDS = (
    "error",  # key: op; value: its error against float64, in units of the reference's own. The card keeps the worst
    "determinism",  # key: "measured"; value: the level 0..3 that was seen to hold. The card keeps the least
    "timing",  # key: what was timed, with its unit; value: a number. Never graded
    "left_out",  # key: op; value: the names of cases whose formats the backend does not claim
)

Value = float | int | str
Note = Callable[[str, str, Value], None]


@dataclass(frozen=True, slots=True)
class Noted:
    """One note."""

    kind: str
    key: str
    value: Value


def make_note(properties: list[tuple[str, object]]) -> Note:
    """The `note` fixture of the test that these properties belong to."""

    def note(kind: str, key: str, value: Value) -> None:
        assert kind in KINDS, f"a note is one of {', '.join(KINDS)}, not {kind!r}"
        properties.append((PROPERTY, [kind, key, value]))

    return note


def read_notes(properties: Iterable[tuple[str, object]]) -> Iterator[Noted]:
    """The notes among a report's properties."""
    for name, value in properties:
        if name == PROPERTY:
            assert isinstance(value, list)
            yield Noted(*value)
