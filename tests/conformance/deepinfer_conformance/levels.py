"""The three levels of thoroughness, and which one a test belongs to."""

from __future__ import annotations

from enum import IntEnum

from deepinfer_core.api.errors import ConfigError, nearest


class Level(IntEnum):
    """Each level runs the tests of the ones below as well."""

    SMOKE = 0  # seconds: is it worth going on?
    CORE = 1  # what a release of a backend must pass
    FULL = 2  # large shapes, many seeds, long runs

    @property
    def label(self) -> str:
        return self.name.lower()


def parse_level(name: str) -> Level:
    """Raises `ConfigError` for a name that is none of the three."""
    labels = [level.label for level in Level]
    if name not in labels:
        raise ConfigError(f"level {name!r} is not allowed{nearest(name, labels)}: choose one of {', '.join(labels)}")
    return Level[name.upper()]
