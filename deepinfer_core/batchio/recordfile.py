"""An append-only file of whole lines that outlives a kill at any byte. Which lines, in which order: `writer.py`."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from deepinfer_core.api.errors import InputFileError

SYNC_SECONDS = 0.5  # records that follow each other faster than this share one fsync


class RecordFile:
    """Each line reaches the operating system at once, and the disk at the next `sync`: with the first line that comes
    SYNC_SECONDS after the last sync, when asked, and at `close`. One process may have the file open."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Open or create. Raises `InputFileError` when the file cannot be written, or another run is writing it."""
        self.path = path
        self._clock = clock
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InputFileError(f"{path} cannot be written: {error.strerror}") from error
        try:
            self._claim()
        except BaseException:
            os.close(self._fd)
            raise
        self._end = os.fstat(self._fd).st_size
        self._synced = clock()

    def _claim(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise InputFileError(f"{self.path} is not a regular file: give one, so that a run can be resumed")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputFileError(f"{self.path} is being written by another run: wait for it or stop it") from error

    @property
    def size(self) -> int:
        return self._end

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(offset, line without its newline) of what is there. What follows the last newline, a line that a kill cut
        short, is dropped from the file when the last line has been given."""
        end = 0
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(0)
            while (line := self._next(file)).endswith(b"\n"):
                yield end, line[:-1]
                end += len(line)
        self.cut(end)

    def _next(self, file: BinaryIO) -> bytes:
        try:
            return file.readline()
        except OSError as error:
            raise InputFileError(f"{self.path} cannot be read: {error.strerror}") from error

    def read(self, offset: int, length: int) -> bytes:
        """Bytes that were appended before."""
        try:
            found = os.pread(self._fd, length, offset)
        except OSError as error:
            raise InputFileError(f"{self.path} cannot be read: {error.strerror}") from error
        if len(found) < length:
            raise InputFileError(f"{self.path} was shortened by somebody else: leave it alone during a run")
        return found

    def append(self, line: bytes) -> int:
        """Write one whole line, newline included; its offset. Raises `InputFileError` when it cannot be written whole:
        the file then ends with the line before."""
        start = self._end
        try:
            view = memoryview(line)
            while view:
                written = os.pwrite(self._fd, view, self._end)
                self._end += written
                view = view[written:]
        except OSError as error:
            self.cut(start)
            raise self._failure(error) from error
        if self._clock() - self._synced >= SYNC_SECONDS:
            self.sync()
        return start

    def cut(self, size: int) -> None:
        """Drop what follows the first `size` bytes."""
        try:
            if size != os.fstat(self._fd).st_size:
                os.ftruncate(self._fd, size)
        except OSError as error:
            raise self._failure(error) from error
        self._end = size

    def sync(self) -> None:
        """Return when all that was appended is on the disk."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise self._failure(error) from error
        self._synced = self._clock()

    def close(self) -> None:
        """Sync, let other runs in, and refuse more."""
        try:
            self.sync()
        finally:
            os.close(self._fd)

    def _failure(self, error: OSError) -> InputFileError:
        return InputFileError(
            f"{self.path} cannot be written: {error.strerror}; whole records stay: make room, then go on with --resume"
        )


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
