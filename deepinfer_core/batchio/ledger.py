"""Which lines of the input have their records, and where in a file these are. Nothing is written here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from deepinfer_core.api.errors import InputFileError
from deepinfer_core.batchio.recordfile import RecordFile
from deepinfer_core.batchio.records import line_of


class LineSet:
    """Line numbers from 1 to `last`, a byte each."""

    def __init__(self, last: int) -> None:
        self._held = bytearray(last + 1)

    def __contains__(self, line: int) -> bool:
        return line < len(self._held) and self._held[line] == 1

    def __len__(self) -> int:
        return self._held.count(1)

    def add(self, line: int) -> None:
        self._held[line] = 1


@dataclass(frozen=True, slots=True)
class Found:
    """A record that is in a file, and where its line of bytes is."""

    line: int
    failed: bool
    offset: int
    length: int


def find_records(file: RecordFile, last_line: int) -> Iterator[Found]:
    """Each record in the file. Raises `InputFileError` for a line that is none of this run's."""
    for number, (offset, raw) in enumerate(file.lines(), 1):
        try:
            record = json.loads(raw)
        except ValueError:
            record = None
        line = line_of(record)
        if line is None or not 1 <= line <= last_line:
            raise InputFileError(
                f"{file.path}, line {number}, is no record of this run: it cannot be resumed; give another output"
            )
        yield Found(line, record.get("response") is None, offset, len(raw) + 1)
