"""Where records go, and in which order. Durability is `recordfile.py`'s."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Protocol

from deepinfer_core.batchio.jsonl import encode_line
from deepinfer_core.batchio.ledger import LineSet, find_records
from deepinfer_core.batchio.recordfile import RecordFile
from deepinfer_core.batchio.records import Record


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

    def __init__(self, output: RecordFile, side: RecordFile, last_line: int) -> None:
        """Takes over both files and what is in them. Records in the side file, which `forget_failed` put there, go to
        the output now, and the side file goes."""
        self._output = output
        self._written = LineSet(last_line)
        self.failed = 0
        for found in find_records(output, last_line):
            self._written.add(found.line)
            self.failed += found.failed
        for found in find_records(side, last_line):
            if found.line not in self._written:
                output.append(side.read(found.offset, found.length))
                self._written.add(found.line)
                self.failed += found.failed
        self.done = len(self._written)
        output.sync()  # before the only other copy goes
        side.close()
        side.path.unlink(missing_ok=True)

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
        self._written = LineSet(last_line)
        self._waiting: dict[int, tuple[int, int]] = {}  # line -> offset and length in the side file
        self._due: deque[int] = deque()  # lines asked about, not written yet; the first is the next to be written
        self.failed = 0
        for found in find_records(output, last_line):
            self._written.add(found.line)
            self.failed += found.failed
        for found in find_records(side, last_line):
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
            self._side.cut(0)


def side_path(output: Path) -> Path:
    """The side file of an output file."""
    return output.with_name(output.name + ".waiting")
