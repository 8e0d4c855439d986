"""A batch file, read twice: once to check every line before a model is loaded, once to send its requests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from deepinfer_core.api.errors import InputFileError
from deepinfer_core.batchio.entry import Entry, Rejected, read_entry
from deepinfer_core.batchio.jsonl import read_lines

_NAMED = 5  # duplicates and models that a message names


@dataclass(frozen=True, slots=True)
class Scan:
    """What the first reading found."""

    requests: int  # lines that are not blank: as many records are owed
    rejected: int  # those of them that will be error records
    last_line: int
    sha256: str
    models: tuple[str, ...]  # the first few models that lines name


class InputFile:
    """Memory does not grow with the file, but for 16 bytes of hash kept for each custom_id while scanning."""

    def __init__(self, path: Path, defaults: Mapping[str, Any]) -> None:
        """`defaults`: sampling parameters of requests that do not give them. Raises `InputFileError`."""
        if not path.is_file():
            raise InputFileError(f"{path} is not a file: give a JSONL file with one request a line")
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise InputFileError(f"{path} cannot be read: {error.strerror}") from error
        self._path = path
        self._defaults = defaults
        self._sha256: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def scan(self) -> Scan:
        """Read every line. Raises `InputFileError` when a custom_id stands on two lines."""
        seen: dict[bytes, int] = {}
        twice: list[str] = []
        models: dict[str, None] = {}
        requests = rejected = last_line = 0
        for last_line, entry in self._read(lambda line: True):
            requests += 1
            rejected += isinstance(entry, Rejected)
            if entry.custom_id is not None:
                first = seen.setdefault(_fingerprint(entry.custom_id), last_line)
                if first != last_line and len(twice) <= _NAMED:
                    twice.append(f"{entry.custom_id!r} on lines {first} and {last_line}")
            if isinstance(entry, Entry) and entry.model is not None and len(models) < _NAMED:
                models[entry.model] = None
        if twice:
            more = " and more" if len(twice) > _NAMED else ""
            raise InputFileError(
                f"{self._path} names requests twice: {', '.join(twice[:_NAMED])}{more}; "
                "give each line a custom_id of its own"
            )
        assert self._sha256 is not None
        return Scan(requests, rejected, last_line, self._sha256, tuple(models))

    def entries(self, wanted: Callable[[int], bool]) -> Iterator[Entry | Rejected]:
        """Read again, lines that are `wanted` by their number. Raises `InputFileError` at the end when the file is not
        what `scan` saw."""
        scanned = self._sha256
        for _, entry in self._read(wanted):
            yield entry
        if self._sha256 != scanned:
            raise InputFileError(f"{self._path} changed while it was being answered: do not edit it during a run")

    def _read(self, wanted: Callable[[int], bool]) -> Iterator[tuple[int, Entry | Rejected]]:
        self._file.seek(0)
        digest = hashlib.sha256()
        for line, raw in read_lines(self._file, digest):
            if wanted(line):
                yield line, read_entry(line, raw, self._defaults)
        self._sha256 = digest.hexdigest()


def _fingerprint(custom_id: str) -> bytes:
    return hashlib.blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
