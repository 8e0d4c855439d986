"""Reads named values out of a config.json section, collecting every fault instead of stopping at the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepinfer_core.api.errors import nearest
from deepinfer_core.loading.faults import Faults

MOST_INTEGER = 2**31 - 1  # kernels take sizes and positions as int32
LEAST_NUMBER, MOST_NUMBER = 1e-30, 1e30  # well within float32, which kernels compute in


class Fields:
    """One section. A faulty field gives a harmless value, so that reading can go on; `bad` names those fields.

    Missing fields become faults in `report_missing`, when it is known which of the fields present nobody asked for.
    """

    def __init__(self, values: Mapping[str, Any], faults: Faults) -> None:
        self._values = values
        self._faults = faults
        self._asked: set[str] = set()
        self._missing: list[str] = []
        self.bad: set[str] = set()

    def report_missing(self) -> None:
        """Add a fault for each missing field, with the nearest name among the fields that were not asked for."""
        strange = [name for name in self._values if name not in self._asked]
        for name in self._missing:
            self._faults.add(f"{name} is missing{nearest(name, strange)}")

    def fault(self, name: str, text: str) -> None:
        """Note that the field `name` is wrong."""
        self.bad.add(name)
        self._faults.add(text)

    def integer(self, name: str, low: int = 1, high: int | None = None, multiple: int = 1) -> int:
        """A whole number low .. high, at most what an int32 holds."""
        value = self._present(name)
        if value is None:
            return low
        high = MOST_INTEGER if high is None else high
        allowed = _range(low, high) + (f" that {multiple} divides" if multiple > 1 else "")
        if not _is_integer(value) or not low <= value <= high or value % multiple:
            self.fault(name, f"{name} = {_shown(value)} is not supported: it must be a whole number {allowed}")
            return low
        return int(value)

    def optional_integer(self, name: str, high: int | None) -> int | None:
        """0 .. high, or None where the field is absent or null."""
        self._asked.add(name)
        return None if self._values.get(name) is None else self.integer(name, low=0, high=high)

    def one_or_more(self, name: str, high: int | None) -> tuple[int, ...]:
        """A whole number 0 .. high or a list of them."""
        value = self._present(name)
        items = value if isinstance(value, list) else [value]
        if value is not None and not all(
            _is_integer(item) and item >= 0 and (high is None or item <= high) for item in items
        ):
            self.fault(name, f"{name} = {value!r} is not supported: it must hold whole numbers {_range(0, high)}")
            return ()
        return tuple(items) if value is not None else ()

    def number(self, name: str, above: float = 0.0) -> float:
        value = self._present(name)
        if value is None:
            return above + 1.0
        fine = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fine or not LEAST_NUMBER <= value <= MOST_NUMBER or value <= above:
            allowed = f"above {above:g}, from {LEAST_NUMBER:g} to {MOST_NUMBER:g}"
            self.fault(name, f"{name} = {_shown(value)} is not supported: it must be a finite number {allowed}")
            return above + 1.0
        return float(value)

    def integers(self, name: str, low: int, high: int | None) -> tuple[int, ...]:
        """A list of whole numbers low .. high, which may be empty."""
        value = self._present(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(_is_integer(item) for item in value):
            self.fault(name, f"{name} = {value!r} is not supported: it must be a list of whole numbers")
            return ()
        outside = [item for item in value if item < low or (high is not None and item > high)]
        if outside:
            self.fault(name, f"{name} has {outside}: every entry must be {_range(low, high)}")
            return ()
        return tuple(value)

    def ascending(self, name: str, high: int | None) -> tuple[int, ...]:
        """A list of layers 0 .. high, each above the one before it."""
        value = self.integers(name, 0, high)
        if list(value) != sorted(set(value)):
            self.fault(name, f"{name} = {list(value)} is not supported: each entry must be above the one before it")
        return value

    def equals(self, name: str, *allowed: Any, required: bool = True) -> None:
        """The field must have one of these values; where it is not required it may be absent."""
        self._asked.add(name)
        if name not in self._values:
            if required:
                self._miss(name)
            return
        value = self._values[name]
        if not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed):
            shown = " or ".join(repr(one) for one in allowed)
            self.fault(name, f"{name} = {value!r} is not supported: it must be {shown}")

    def section(self, name: str) -> Fields | None:
        """The fields of a nested object; None, with a fault, where there is none."""
        value = self._present(name)
        if isinstance(value, Mapping):
            return Fields(value, self._faults)
        if value is not None:
            self.fault(name, f"{name} = {value!r} is not supported: it must be an object")
        return None

    def has(self, name: str) -> bool:
        """Whether the field is there, whatever its value."""
        return name in self._values

    def _present(self, name: str) -> Any:
        self._asked.add(name)
        value = self._values.get(name)
        if value is None:
            self._miss(name)
        return value

    def _miss(self, name: str) -> None:
        self.bad.add(name)
        self._missing.append(name)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """The value, cut where it is too long to read."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _range(low: int, high: int | None) -> str:
    return f"from {low}" if high is None else f"from {low} to {high}"
