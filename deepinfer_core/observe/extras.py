"""Packages that not everybody needs: what asks for one says how to get it."""

from __future__ import annotations

from importlib.util import find_spec

from deepinfer_core.api.errors import ConfigError


def require(module: str, extra: str, asked: str) -> None:
    """Raise `ConfigError` when the package behind `asked`, which our extra `extra` installs, is not there."""
    if find_spec(module) is None:
        raise ConfigError(
            f"{asked} needs the package {module.replace('_', '-')}, which is not installed: "
            f"run pip install 'deepinfer-core[{extra}]', or pip install {module.replace('_', '-')}"
        )
