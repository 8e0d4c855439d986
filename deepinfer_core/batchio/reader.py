"""A batch file, read twice: once to check every line before a model is loaded, once to send its requests."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from deepinfer_core.api.errors import InputFileError, shown
from deepinfer_core.batchio.entry import Entry, Rejected, read_entry
from deepinfer_core.batchio.jsonl import Digest, read_lines

_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # its byte order marks
_CHUNK = 1 << 20
_NAMED = 5  # duplicates and models that a message names


@dataclass(frozen=True, slots=True)
class Scan:
    """What the first reading found."""

    requests: int  # lines that are not blank: as many records are owed
    rejected: int  # those of them that will be error records
    first_rejected: Rejected | None
    last_line: int
    sha256: str
    bytes: int
    models: tuple[str, ...]  # the first few models that lines name


class InputFile:
    """Memory does not grow with the file, but for 16 bytes of hash kept for each custom_id while scanning."""

    def __init__(self, path: Path, defaults: Mapping[str, Any]) -> None:
        """`defaults`: sampling parameters of requests that do not give them. Raises `InputFileError`."""
        self._path = path
        self._file = _open(path)
        self._defaults = defaults
        self._sha256: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def scan(self) -> Scan:
        """Read every line. Raises `InputFileError` when a custom_id stands on two lines, or the file is UTF-16."""
        self._check_encoding()
        seen: dict[bytes, int] = {}
        twice: list[str] = []
        models: dict[str, None] = {}
        requests = rejected = last_line = 0
        first_rejected: Rejected | None = None
        for last_line, entry in self._read(lambda line: True):
            requests += 1
            if isinstance(entry, Rejected):
                rejected += 1
                first_rejected = first_rejected or entry
            if entry.custom_id is not None:
                first = seen.setdefault(_fingerprint(entry.custom_id), last_line)
                if first != last_line and len(twice) <= _NAMED:
                    twice.append(f"{shown(entry.custom_id)} on lines {first} and {last_line}")
            if isinstance(entry, Entry) and entry.model is not None and len(models) < _NAMED:
                models[entry.model] = None
        if twice:
            more = " and more" if len(twice) > _NAMED else ""
            raise InputFileError(
                f"{self._path} names requests twice: {', '.join(twice[:_NAMED])}{more}; "
                "give each line a custom_id of its own"
            )
        assert self._sha256 is not None
        return Scan(
            requests=requests,
            rejected=rejected,
            first_rejected=first_rejected,
            last_line=last_line,
            sha256=self._sha256,
            bytes=self._file.tell(),
            models=tuple(models),
        )

    def _check_encoding(self) -> None:
        with self._readable():
            head = self._file.read(64)
        if head.startswith(_UTF16) and b"\0" in head:
            raise InputFileError(f"{self._path} is UTF-16 text: save it as UTF-8")

    def begins_with(self, size: int, sha256: str) -> bool:
        """Whether the lines of a file of `size` bytes and that hash are the first lines of this one."""
        digest = hashlib.sha256()
        last = b"\n"
        with self._readable():
            self._file.seek(0)
            while size > 0 and (part := self._file.read(min(size, _CHUNK))):
                digest.update(part)
                last = part[-1:]
                size -= len(part)
            after = self._file.read(2)
        ended = last == b"\n" or after == b"" or after.startswith(b"\n") or after == b"\r\n"
        return size == 0 and ended and digest.hexdigest() == sha256

    def entries(self, wanted: Callable[[int], bool]) -> Iterator[Entry | Rejected]:
        """Read again, lines that are `wanted` by their number. Raises `InputFileError` at the end when the file is not
        what `scan` saw."""
        scanned = self._sha256
        for _, entry in self._read(wanted):
            yield entry
        if self._sha256 != scanned:
            raise InputFileError(f"{self._path} changed while it was being answered: do not edit it during a run")

    def _read(self, wanted: Callable[[int], bool]) -> Iterator[tuple[int, Entry | Rejected]]:
        digest = hashlib.sha256()
        for line, raw in self._lines(digest):
            if wanted(line):
                yield line, read_entry(line, raw, self._defaults)
        self._sha256 = digest.hexdigest()

    def _lines(self, digest: Digest) -> Iterator[tuple[int, bytes | None]]:
        with self._readable():
            self._file.seek(0)
            yield from read_lines(self._file, digest)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputFileError(f"{self._path} cannot be read: {error.strerror}") from error


def _open(path: Path) -> BinaryIO:
    """Only what can be read twice."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            return path.open("rb")
    except FileNotFoundError:
        if path == Path("-"):
            raise InputFileError("standard input cannot be read twice: save its lines in a file") from None
        raise InputFileError(f"{path} does not exist: give a JSONL file with one request a line") from None
    except OSError as error:
        raise InputFileError(f"{path} cannot be read: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise InputFileError(f"{path} is a folder: give a JSONL file with one request a line")
    raise InputFileError(f"{path} is a pipe or a device, which cannot be read twice: save its lines in a file")


def _fingerprint(custom_id: str) -> bytes:
    return hashlib.blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
