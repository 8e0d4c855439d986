"""Reads tensors into the memory that they will stay in: one shard open at a time, no second copy of any of them."""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from deepinfer_core.api.errors import CheckpointError
from deepinfer_core.loading.headers import TensorEntry
from deepinfer_core.loading.index import ADVICE, Checkpoint
from deepinfer_core.loading.tensors import TORCH_DTYPES, has_nan


class CheckpointReader:
    """A context manager. Read in the order of shards: each change of shard closes one file and opens another."""

    def __init__(self, checkpoint: Checkpoint, device: torch.device) -> None:
        self._checkpoint = checkpoint
        self._device = device
        self._shard: Path | None = None
        self._file: FileIO | None = None

    def __enter__(self) -> CheckpointReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def read(self, name: str) -> Tensor:
        """A new tensor on the device, in its stored dtype; E8M0 scales and packed pairs as uint8."""
        entry = self._checkpoint.tensors[name]
        out = torch.empty(entry.shape, dtype=TORCH_DTYPES[entry.dtype], device=self._device)
        self.read_into(name, out)
        return out

    def read_into(self, name: str, out: Tensor) -> None:
        """Fill `out`, contiguous and of the tensor's shape. Raises `CheckpointError` where a value is not a number."""
        entry = self._checkpoint.tensors[name]
        assert tuple(out.shape) == entry.shape, f"{name} has shape {entry.shape}, not {tuple(out.shape)}"
        host = out if out.is_cpu else torch.empty(out.shape, dtype=out.dtype)
        self._fill(entry, host)
        refuse_nan(entry, host)
        if host is not out:
            out.copy_(host)

    def _fill(self, entry: TensorEntry, host: Tensor) -> None:
        rest = memoryview(host.view(-1).view(torch.uint8).numpy().data)
        try:
            self._read(entry, rest)
        except OSError as error:
            raise CheckpointError(f"{entry.shard} cannot be read: {error.strerror}. {ADVICE}") from error

    def _read(self, entry: TensorEntry, rest: memoryview) -> None:
        file = self._open(entry.shard)
        file.seek(entry.start)
        while rest:
            count = file.readinto(rest)  # may be less than asked for
            if not count:
                raise CheckpointError(
                    f"{entry.shard} ended within {entry.name}: it changed while it was read. {ADVICE}"
                )
            rest = rest[count:]

    def _open(self, shard: Path) -> FileIO:
        if self._file is None or self._shard != shard:
            if self._file is not None:
                self._file.close()
            self._file, self._shard = FileIO(shard), shard
        return self._file


def refuse_nan(entry: TensorEntry, stored: Tensor) -> None:
    """Raise `CheckpointError` naming the tensor when a stored value, scale bytes included, is not a number."""
    if has_nan(stored, entry.dtype):
        raise CheckpointError(
            f"{entry.name} ({entry.dtype}) in {entry.shard.name} has values that are not numbers (NaN). {ADVICE}"
        )
