"""Dropping the records of failed requests, so that a resumed run answers their lines again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from deepinfer_core.api.errors import InputFileError
from deepinfer_core.batchio.ledger import LineSet, find_records
from deepinfer_core.batchio.recordfile import RecordFile, sync_folder


def forget_failed(output: RecordFile, side: Path, last_line: int) -> None:
    """Keep the records before the first error in `output`, and all others that are no errors in the file `side`, from
    which either writer takes them.

    Killed at any moment, it leaves each record that is no error in one of the files or in both; and it drops nothing
    before what it keeps is on the disk. Raises `InputFileError` when there is no room for that.
    """
    with closing(RecordFile(side)) as waiting:
        part = side.with_name(side.name + ".part")
        try:
            part.unlink(missing_ok=True)
            with closing(RecordFile(part)) as copy:
                kept = _copy_after_first_error(output, waiting, copy, last_line)
            part.replace(side)
            sync_folder(side.parent)
        except OSError as error:
            raise InputFileError(f"{side} cannot be written: {error.strerror}; nothing was dropped") from error
        finally:
            part.unlink(missing_ok=True)
    output.cut(kept)
    output.sync()


def _copy_after_first_error(output: RecordFile, waiting: RecordFile, copy: RecordFile, last_line: int) -> int:
    """Where the first error begins in `output`; at its end when there is none."""
    written = LineSet(last_line)
    kept: int | None = None
    for found in find_records(output, last_line):
        written.add(found.line)
        if found.failed:
            kept = found.offset if kept is None else kept
        elif kept is not None:
            copy.append(output.read(found.offset, found.length))
    for found in find_records(waiting, last_line):
        if not found.failed and found.line not in written:
            copy.append(waiting.read(found.offset, found.length))
    return output.size if kept is None else kept
