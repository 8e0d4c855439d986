"""Where records go, in which order, and which lines have theirs already. Durability is `recordfile.py`'s."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deepinfer_core.api.errors import InputFileError
from deepinfer_core.batchio.jsonl import encode_line
from deepinfer_core.batchio.recordfile import RecordFile
from deepinfer_core.batchio.records import Record, line_of


class RecordWriter(Protocol):
    """Takes exactly one record for each line that it wants."""

    @property
    def done(self) -> int:
        """Lines whose records an earlier run left."""

    @property
    def failed(self) -> int:
        """Those of them that are errors."""

    def wanted(self, line: int) -> bool:
        """Called once for each line of the input, in order: whether it still needs a record."""

    def write(self, line: int, record: Record) -> None:
        """Take the record of a wanted line. Raises `InputFileError` when it cannot be kept."""

    def close(self) -> None: ...


class CompletionOrder:
    """Writes records as they come."""

    def __init__(self, output: RecordFile, last_line: int) -> None:
        """Takes over `output` and what is in it."""
        self._output = output
        self._written = _LineSet(last_line)
        self.failed = 0
        for found in _records(output, last_line):
            self._written.add(found.line)
            self.failed += found.failed
        self.done = len(self._written)

    def wanted(self, line: int) -> bool:
        return line not in self._written

    def write(self, line: int, record: Record) -> None:
        self._output.append(encode_line(record))

    def close(self) -> None:
        self._output.close()


class InputOrder:
    """Writes records in the order of their lines. One that comes too early waits in a second file, the side file, and
    is as safe there: a resumed run takes it from there."""

    def __init__(self, output: RecordFile, side: RecordFile, last_line: int) -> None:
        """Takes over both files and what is in them. The side file is removed when nothing waits in it at the end."""
        self._output = output
        self._side = side
        self._written = _LineSet(last_line)
        self._waiting: dict[int, tuple[int, int]] = {}  # line -> offset and length in the side file
        self._due: deque[int] = deque()  # lines asked about, not written yet; the first is the next to be written
        self.failed = 0
        for found in _records(output, last_line):
            self._written.add(found.line)
            self.failed += found.failed
        for found in _records(side, last_line):
            if found.line not in self._written:
                self._waiting[found.line] = (found.offset, found.length)
                self.failed += found.failed
        self.done = len(self._written) + len(self._waiting)

    def wanted(self, line: int) -> bool:
        if line in self._written:
            return False
        self._due.append(line)
        missing = line not in self._waiting
        self._drain()
        return missing

    def write(self, line: int, record: Record) -> None:
        data = encode_line(record)
        if line == self._due[0]:
            self._output.append(data)
            self._due.popleft()
            self._drain()
        else:
            self._waiting[line] = (self._side.append(data), len(data))

    def close(self) -> None:
        try:
            self._output.close()
        finally:
            self._side.close()
        if not self._waiting:
            self._side.path.unlink(missing_ok=True)

    def _drain(self) -> None:
        while self._due and (place := self._waiting.get(self._due[0])) is not None:
            self._output.append(self._side.read(*place))
            del self._waiting[self._due.popleft()]
        if not self._waiting and self._side.size:
            self._output.sync()  # before the only other copy goes
            self._side.clear()


def side_path(output: Path) -> Path:
    """The side file of an output file."""
    return output.with_name(output.name + ".waiting")


class _LineSet:
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
class _Found:
    """A record that is in a file, and where its line of bytes is."""

    line: int
    failed: bool
    offset: int
    length: int


def _records(file: RecordFile, last_line: int) -> Iterator[_Found]:
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
        yield _Found(line, record.get("response") is None, offset, len(raw) + 1)
