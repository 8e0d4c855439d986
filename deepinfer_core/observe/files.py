"""Writing a file that somebody else may be reading: it is there whole, or as it was before."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from deepinfer_core.api.errors import ConfigError


def check_target(path: Path) -> None:
    """Refuse, before any work is done, a place where no file can be. Raises `ConfigError`."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: give the name of a file")
    if not path.parent.is_dir():
        raise ConfigError(f"{path.parent} is not a folder: make it, or give another file")


def replace_file(path: Path, parts: Iterable[bytes]) -> None:
    """Write `parts` one after the other. What is no regular file (a pipe, a terminal, /dev/null) is written to as it
    is and never replaced. Raises `ConfigError`."""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                file.writelines(parts)
        else:
            _replace(Path(os.path.realpath(path)), parts)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def _replace(path: Path, parts: Iterable[bytes]) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.writelines(parts)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
