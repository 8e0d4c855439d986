"""Waivers: tests that an author knows to fail, each with a reason, a link, a kind and the expected exception."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from deepinfer_core.api.errors import ConfigError, nearest

KINDS: Mapping[str, str] = {
    "not_implemented": "the backend's to do",
    "upstream": "a fault of something that the backend is built on",
    "never": "the hardware cannot do it",
}


@dataclass(frozen=True, slots=True)
class Waiver:
    """One entry. `tests` is a test's id, in which * stands for anything: `test_ops.py::test_a_name[linear-*]`."""

    tests: str
    reason: str
    link: str
    kind: str
    raises: str  # the exception's class name, with or without its module; a class that it derives from will do

    def matches(self, test: str) -> bool:
        return re.fullmatch(".*".join(map(re.escape, self.tests.split("*"))), test) is not None

    def expects(self, error: BaseException) -> bool:
        """Whether the test failed in the way that was foretold."""
        names = {name for one in type(error).__mro__ for name in (one.__name__, f"{one.__module__}.{one.__name__}")}
        return self.raises in names


FIELDS = tuple(field.name for field in fields(Waiver))


def read_waivers(path: Path | None) -> tuple[Waiver, ...]:
    """The waivers of a TOML file with a `[[waiver]]` table each. Raises `ConfigError` naming file, entry and field."""
    if path is None:
        return ()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"waiver file {path} cannot be read: {error}") from error
    entries = content.get("waiver")
    if set(content) != {"waiver"} or not isinstance(entries, list):
        raise ConfigError(f"waiver file {path} must hold [[waiver]] tables and nothing else")
    return tuple(_waiver(entry, f"waiver {number} of {path}") for number, entry in enumerate(entries, 1))


def find_waiver(waivers: Iterable[Waiver], test: str) -> Waiver | None:
    """The first that names the test."""
    return next((waiver for waiver in waivers if waiver.matches(test)), None)


def _waiver(entry: object, where: str) -> Waiver:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is not a table with {', '.join(FIELDS)}")
    for name in entry:
        if name not in FIELDS:
            raise ConfigError(f"{where} has an unknown field {name!r}{nearest(name, FIELDS)}")
    waiver = Waiver(**{name: _text(entry, name, where) for name in FIELDS})
    if waiver.kind not in KINDS:
        kinds = "; ".join(f"{kind}: {meaning}" for kind, meaning in KINDS.items())
        raise ConfigError(f"{where}: kind = {waiver.kind!r} is not allowed{nearest(waiver.kind, KINDS)} ({kinds})")
    if not re.match(r"https?://\S+$", waiver.link):
        raise ConfigError(f"{where}: link = {waiver.link!r} is not allowed: give the address of an issue, https://...")
    return waiver


def _text(entry: Mapping[str, Any], name: str, where: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where} has no {name}: a waiver needs {', '.join(FIELDS)}, each a text")
    return value.strip()
