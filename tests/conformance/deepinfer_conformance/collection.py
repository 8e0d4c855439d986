"""Which tests a run has: those of the suite, of the level and of the dtype asked for, and whether all are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deepinfer_conformance import inventory
from deepinfer_conformance.claims import check_claims
from deepinfer_conformance.levels import Level, parse_level
from deepinfer_conformance.options import Options
from deepinfer_core.api.errors import ConfigError

WHOLE = ("deepinfer_conformance", "deepinfer_conformance.areas")  # what `--pyargs` may name for all of the suite


def is_standard(item: pytest.Item) -> bool:
    """Whether the test lies in the suite's own areas."""
    return inventory.AREAS in item.path.parents


def test_id(item: pytest.Item) -> str:
    """How waivers and cards call a test: `test_ops.py::test_a_name[parameters]`, wherever the suite is installed."""
    return f"{item.path.name}::{item.name}"


def capabilities_of(item: pytest.Item) -> tuple[str, ...]:
    """The capabilities that a backend must claim for the test to run."""
    names = [name for marker in item.iter_markers("capability") for name in marker.args]
    return tuple(dict.fromkeys(names))


def level_of(item: pytest.Item) -> Level:
    """The lowest level that runs the test; core where it says nothing."""
    marker = item.get_closest_marker("level")
    return Level.CORE if marker is None else parse_level(*marker.args)


@dataclass(slots=True)
class Collection:
    """What pytest found, what was left out and by whom. Ids are those of `test_id`."""

    known: set[str] = field(default_factory=set)  # every standard test, whatever its level
    chosen: set[str] = field(default_factory=set)  # those of the level and dtype asked for
    expected: set[str] = field(default_factory=set)  # those of them that nobody deselected
    narrowed: bool = False  # somebody chose tests by name, keyword or path: the run gives no verdict

    def choose(self, items: list[pytest.Item], options: Options) -> list[pytest.Item]:
        """Remove from `items` what the options leave out, and give that. Raises `ConfigError` for a marker's fault."""
        left_out = []
        for item in [one for one in items if is_standard(one)]:
            self.known.add(test_id(item))
            try:
                check_claims(capabilities_of(item))
                wanted = level_of(item) <= options.level and _has_dtype(item, options.dtype)
            except (ConfigError, TypeError) as error:
                raise ConfigError(f"{test_id(item)}: {error}") from error
            if wanted:
                self.chosen.add(test_id(item))
            else:
                left_out.append(item)
        items[:] = [item for item in items if item not in set(left_out)]
        return left_out

    def check(self, items: Sequence[pytest.Item], deselected: set[str], arguments: Sequence[str]) -> None:
        """Find tests that vanished without being deselected, and tests that are not as shipped.

        Raises `ConfigError` naming them. A run of chosen tests is only noted as such.
        """
        _check_functions(items)
        self.expected = self.chosen - deselected
        gone = sorted(self.expected - {test_id(item) for item in items if is_standard(item)})
        if gone:
            raise ConfigError(f"standard tests were removed after they had been collected: {', '.join(gone)}")
        self.narrowed = bool(self.chosen & deselected) or not _is_whole(arguments)
        if self.narrowed:
            return
        listed = inventory.shipped()
        found = {(file, test) for file, _, test in (name.split("[")[0].partition("::") for name in self.known)}
        faults = [
            *inventory.changes(listed, inventory.present()),
            *(f"{test} was not collected" for test in inventory.missing(listed, found)),
        ]
        if faults:
            raise ConfigError(f"the standard tests are not as they were shipped: {'; '.join(faults)}")


def _has_dtype(item: pytest.Item, dtype: str | None) -> bool:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return dtype is None or parameters.get("op_dtype", dtype) == dtype


def _check_functions(items: Sequence[pytest.Item]) -> None:
    """Each standard test runs the function of its own file."""
    for item in items:
        if is_standard(item) and isinstance(item, pytest.Function):
            source = Path(item.function.__code__.co_filename)
            if source != item.path or item.function.__name__ != item.originalname:
                raise ConfigError(f"{test_id(item)} was overridden: it runs {item.function.__name__} of {source}")


def _is_whole(arguments: Sequence[str]) -> bool:
    """Whether the arguments name all of the suite."""
    folders = (inventory.AREAS, inventory.PACKAGE)
    return any(name in WHOLE or ("::" not in name and Path(name).resolve() in folders) for name in arguments)
