"""Templates filled in with a package's names, and written into a folder.

A template is a package that works as it stands. The placeholders are its names: `deepinfer_mychip`, `mychip` and
`MyChip` in a backend, `deepinfer_myplugin`, `myplugin` and `MyPlugin` in the others.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from deepinfer_conformance.scaffold.names import Names
from deepinfer_core.api.errors import DeepInferError

PLUGIN_KINDS = ("constraint", "drafter", "processor")
KINDS = ("backend", *PLUGIN_KINDS)  # each a folder under templates/


class FolderRefused(DeepInferError):
    """A new package cannot be written to this folder."""

    code = "folder_refused"


def render(kind: str, names: Names) -> dict[str, str]:
    """Path in the package -> content, in order of paths, for one of KINDS."""
    word, prefix = ("mychip", "MyChip") if kind == "backend" else ("myplugin", "MyPlugin")
    values = {f"deepinfer_{word}": names.module, word: names.name, prefix: names.prefix}
    placeholder = re.compile("|".join(values))  # the first one that fits wins

    def fill(text: str) -> str:
        return placeholder.sub(lambda found: values[found[0]], text)

    root = resources.files("deepinfer_conformance.scaffold") / "templates" / kind
    return {fill(path): fill(text) for path, text in sorted(_files(root))}


def write_package(files: Mapping[str, str], folder: Path) -> None:
    """Write into `folder`, which may exist if it is empty. Raises `FolderRefused`, and then leaves no file behind."""
    try:
        existed = _is_empty_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(folder, error) from error
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        _take_back(files, folder, existed)
        raise _refused(folder, error) from error


def _files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    """What tools leave in a folder that they have looked at (.ruff_cache, __pycache__) is no part of a template."""
    for entry in folder.iterdir():
        if entry.name.startswith((".", "__pycache__")):
            continue
        if entry.is_file():
            yield prefix + entry.name, entry.read_text(encoding="utf-8")
        else:
            yield from _files(entry, f"{prefix}{entry.name}/")


def _is_empty_folder(folder: Path) -> bool:
    """False when there is nothing. Raises `FolderRefused` when there is something else."""
    if not folder.exists() and not folder.is_symlink():
        return False
    if not folder.is_dir():
        raise FolderRefused(f"{folder} is not a folder: name one that is empty or does not exist yet")
    if any(folder.iterdir()):
        raise FolderRefused(f"{folder} is not empty: name a folder that is empty or does not exist yet")
    return True


def _take_back(files: Mapping[str, str], folder: Path, existed: bool) -> None:
    if not existed:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for top in {name.split("/")[0] for name in files}:
        if (folder / top).is_dir():
            shutil.rmtree(folder / top, ignore_errors=True)
        else:
            (folder / top).unlink(missing_ok=True)


def _refused(folder: Path, error: OSError) -> FolderRefused:
    return FolderRefused(f"{folder} cannot be written ({error.strerror}): name a folder that can")
