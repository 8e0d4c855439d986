"""The files of a run: which may be used, and what of an earlier run is kept. What is in them is not made here."""

from __future__ import annotations

import dataclasses
import logging
import secrets
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from deepinfer_core.api.errors import ConfigError, InputFileError
from deepinfer_core.batchio.manifest import Manifest, manifest_path
from deepinfer_core.batchio.options import BatchOptions
from deepinfer_core.batchio.reader import InputFile, Scan
from deepinfer_core.batchio.recordfile import RecordFile
from deepinfer_core.batchio.retry import forget_failed
from deepinfer_core.batchio.writer import CompletionOrder, InputOrder, RecordWriter, side_path

logger = logging.getLogger(__name__)


def check_paths(source: Path, target: Path, options: BatchOptions) -> None:
    """Refuse, before anything is read or made, what cannot be. Raises `ConfigError` or `InputFileError`."""
    if options.continues and options.overwrite:
        asked = "resume" if options.resume else "retry_failed"
        raise ConfigError(f"{asked} and overwrite exclude each other: give one of them")
    if not target.name:
        raise InputFileError(f"{target} is not a file: give the records a file of their own")
    if not target.parent.is_dir():
        raise InputFileError(f"{target.parent} is not a folder: make it, or give another output")
    for ours in (target, side_path(target), manifest_path(target)):
        if _same(ours, source):
            pair = "input and output" if ours == target else f"the input and the output's {ours.name}"
            raise InputFileError(f"{pair} are the same file, {source}: give another output")


def _same(ours: Path, source: Path) -> bool:
    try:
        return ours.resolve() == source.resolve() or (ours.exists() and source.exists() and ours.samefile(source))
    except OSError as error:
        raise InputFileError(f"{error.filename} cannot be used: {error.strerror}") from error
    except RuntimeError as error:  # links that go round in a circle
        raise InputFileError(f"{ours} or {source} cannot be used: {error}") from error


def open_output(
    target: Path, file: InputFile, scan: Scan, options: BatchOptions, identity: Mapping[str, Any]
) -> tuple[RecordWriter, Manifest]:
    """The writer and the run's manifest. No record that is there is lost unless `overwrite` or, for errors,
    `retry_failed` says so."""
    manifest = _manifest(scan, options, identity)
    side = side_path(target)
    with ExitStack() as opened:
        output = RecordFile(target)
        opened.callback(output.close)
        begun = output.size > 0 or (side.is_file() and side.stat().st_size > 0)
        if begun and not options.overwrite:
            manifest = _earlier(target, file, manifest, options)
            if options.retry_failed:
                forget_failed(output, side, scan.last_line)
        else:
            output.cut(0)
            side.unlink(missing_ok=True)
            manifest.save(manifest_path(target))
        waiting = RecordFile(side)
        opened.callback(waiting.close)
        kind = CompletionOrder if options.order == "completion" else InputOrder
        writer = kind(output, waiting, scan.last_line)
        opened.pop_all()
    return writer, manifest


def _manifest(scan: Scan, options: BatchOptions, identity: Mapping[str, Any]) -> Manifest:
    """Of a run that starts now."""
    return Manifest(
        input_sha256=scan.sha256,
        input_bytes=scan.bytes,
        requests=scan.requests,
        order=options.order,
        settings={**options.settings, **identity},
        versions=options.versions,
        created=int(time.time()),
        seed=secrets.randbits(64) if options.seed is None else options.seed,
    )


def _earlier(target: Path, file: InputFile, now: Manifest, options: BatchOptions) -> Manifest:
    """The manifest of the run that is to be continued, brought up to date when lines were added to its input. Raises
    `InputFileError` when it is not this one."""
    if not options.continues:
        raise InputFileError(f"{target} holds records: continue it with --resume, or start again with --overwrite")
    path = manifest_path(target)
    earlier = Manifest.load(path)
    if earlier is None:
        raise InputFileError(f"{target} has no manifest beside it: it cannot be resumed; start again with --overwrite")
    changed = now.differences(earlier)
    grown = now.input_sha256 != earlier.input_sha256
    if grown and not file.begins_with(earlier.input_bytes, earlier.input_sha256):
        changed.insert(0, f"input: sha256 {earlier.input_sha256} then, {now.input_sha256} now; only lines may be added")
    if changed:
        raise InputFileError(
            f"{target} was begun by a different run ({'; '.join(changed)}): undo that, or start again with --overwrite"
        )
    if earlier.versions != now.versions:
        logger.warning("%s was begun with %s and goes on with %s", target, dict(earlier.versions), dict(now.versions))
    if grown:
        earlier = dataclasses.replace(
            earlier, input_sha256=now.input_sha256, input_bytes=now.input_bytes, requests=now.requests
        )
        earlier.save(path)
    return earlier
