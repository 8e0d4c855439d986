"""From the one name that an author gives to all the names of a package, and why a name cannot be used."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.api.errors import DeepInferError, shown

if TYPE_CHECKING:
    from deepinfer_core.plugin.loader import Plugins

LONGEST = 20  # characters: lines of the templates have room for so many

_NAME = re.compile("[a-z][a-z0-9]*(-[a-z0-9]+)*")


class NameRefused(DeepInferError):
    """The name cannot be that of a new package."""

    code = "name_refused"


@dataclass(frozen=True, slots=True)
class Names:
    """What a package called `name` calls its parts."""

    name: str  # of the entry point, and what users write: my-chip
    family: str  # "backend" or "plugin"

    @property
    def distribution(self) -> str:
        """deepinfer-backend-my-chip"""
        return f"deepinfer-{self.family}-{self.name}"

    @property
    def module(self) -> str:
        """deepinfer_my_chip"""
        return f"deepinfer_{self.name.replace('-', '_')}"

    @property
    def prefix(self) -> str:
        """MyChip, which classes begin with."""
        return "".join(part.capitalize() for part in self.name.split("-"))


def check_name(name: str, family: str) -> Names:
    """The names made from `name`. Raises `NameRefused` when it is no name."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST:
        raise NameRefused(
            f"the name {shown(name)} is not allowed: give at most {LONGEST} lower-case letters and digits, beginning "
            "with a letter; a single '-' may stand between two of them"
        )
    return Names(name, family)


def check_free(names: Names, kind: str, plugins: Plugins) -> None:
    """Raises `NameRefused` when something that is installed has one of the names. `kind` is what the package will
    register under it."""
    for owner in _owners(names, kind, plugins):
        raise NameRefused(f"the name {names.name!r} is taken by {owner}: choose another, or uninstall that")


def _owners(names: Names, kind: str, plugins: Plugins) -> Iterator[str]:
    for outcome in plugins.outcomes:
        if outcome.plugin == names.name:
            yield f"an installed plugin ({outcome.distribution} {outcome.version})"
    table = plugins.registry.by_hook[f"deepinfer_{kind}s"]
    if names.name in table:
        yield f"the {table.kind} of the plugin {', '.join(map(repr, table.plugins_of(names.name)))}"
    try:
        version = importlib.metadata.version(names.distribution)
    except importlib.metadata.PackageNotFoundError:
        pass
    else:
        yield f"an installed distribution ({names.distribution} {version})"
    if importlib.util.find_spec(names.module) is not None:
        yield f"an installed module ({names.module})"
