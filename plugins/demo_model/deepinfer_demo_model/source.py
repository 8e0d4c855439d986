"""A model source's folder: found where an earlier use made it, or made now, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from deepinfer_core.api.errors import PluginError
from deepinfer_demo_model.checkpoint import write_random_checkpoint
from deepinfer_demo_model.spec import ModelSpec
from deepinfer_demo_model.tokenizer_file import build_tokenizer, token_classes, write_tokenizer

logger = logging.getLogger(__name__)

RECIPE = 1  # raise it when the same spec no longer gives the same files


def ready_folder(name: str, spec: ModelSpec, bases: tuple[Path, ...] | None = None) -> Path:
    """The folder of the random model `name`, made first if there is none.

    It lies under the first of `bases` that can be written to; by default the package's own data folder, then the
    user's cache. The folder's name tells the spec, so a model made from another spec is never taken for it. Raises
    `PluginError` when no base can be written to.
    """
    bases = bases or (Path(__file__).parent / "data", Path.home() / ".cache" / "deepinfer")
    folder_name = f"{name}-{_fingerprint(spec)}"
    for base in bases:
        if (base / folder_name).is_dir():
            return base / folder_name
    refusals = []
    for base in bases:
        try:
            return _make(base / folder_name, spec)
        except OSError as error:
            refusals.append(f"{base} ({error.strerror})")
    raise PluginError(
        f"the model {name!r} has to be made on first use and cannot be written to {' or '.join(refusals)}"
    )


def _fingerprint(spec: ModelSpec) -> str:
    content = json.dumps([RECIPE, spec.config()])
    return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()


def _make(folder: Path, spec: ModelSpec) -> Path:
    """Write into a temporary folder beside it and rename: another process sees all of it or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        logger.info("making the model %s", folder)
        _write(temporary, spec)
        temporary.chmod(0o755)  # mkdtemp lets nobody else in
        _rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _rename(temporary: Path, folder: Path) -> None:
    try:
        temporary.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process was faster, and its files are the same
            raise


def _write(folder: Path, spec: ModelSpec) -> None:
    tokenizer = build_tokenizer(spec.vocab_size)
    classes = token_classes(tokenizer)
    write_random_checkpoint(folder, replace(spec, engram_compressed_vocab_size=max(classes) + 1), classes)
    write_tokenizer(tokenizer, folder)
