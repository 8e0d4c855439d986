"""Distributions with plugins, written to a folder as an installer would leave them."""

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from textwrap import dedent

import pytest

from deepinfer_core.api.config import Environment, read_environment
from deepinfer_core.plugin.loader import Plugins, load_plugins

HEADER = """
from deepinfer_core.plugin.hookspecs import hookimpl
built_for = 1
"""


class Site:
    """A folder like site-packages. `load` loads what was installed into it, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, plugin: str, code: str, header: str = HEADER, distribution: str | None = None) -> None:
        """Install a distribution whose only plugin is a module of this code."""
        distribution = distribution or f"dist-{plugin}"
        module = f"fake_{distribution.replace('-', '_')}"
        (self.folder / f"{module}.py").write_text(header + dedent(code))
        metadata = self.folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[deepinfer]\n{plugin} = {module}\n")

    def found(self) -> list[EntryPoint]:
        every = distributions(path=[str(self.folder)])
        return [point for one in every for point in one.entry_points if point.group == "deepinfer"]

    def load(self, environment: Environment | None = None, stop: bool = True) -> Plugins:
        return load_plugins(environment or lenient(), found=self.found(), stop=stop)


def lenient(**variables: str) -> Environment:
    """The environment of a user who set only these variables."""
    return read_environment(variables)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield Site(tmp_path)
    for name in [name for name in sys.modules.keys() - before if name.startswith("fake_")]:
        del sys.modules[name]


@pytest.fixture
def environment() -> Callable[..., Environment]:
    return lenient
