"""A model's content in a few digests, found without reading its weights, so that a run is not resumed with another."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

from deepinfer_core.api.errors import CheckpointError
from deepinfer_core.loading.headers import MAX_HEADER_BYTES

SAMPLES = 8  # pieces of a shard's tensors that are read, the first and the last among them
SAMPLE_BYTES = 4096


def model_fingerprint(folder: Path) -> dict[str, str]:
    """`model NAME` -> digest for each JSON file of the folder, and `model weights`: the names, sizes and headers of all
    safetensors shards, and SAMPLES pieces of each. Other weights of the same shapes are told apart when they differ in
    one of these pieces. Raises `CheckpointError` for a file that cannot be read."""
    try:
        found = {
            f"model {path.name}": _short(hashlib.sha256(path.read_bytes()).hexdigest())
            for path in sorted(folder.glob("*.json"))
            if path.is_file() and not path.name.startswith(".")
        }
        weights = hashlib.sha256()
        for shard in sorted(folder.glob("*.safetensors")):
            for part in _parts(shard):
                weights.update(part)
    except OSError as error:
        raise CheckpointError(f"{error.filename or folder} cannot be read: {error.strerror}") from error
    return {**found, "model weights": _short(weights.hexdigest())}


def _parts(shard: Path) -> Iterator[bytes]:
    """A shard's name and size, its header, and pieces at equal distances. One that is none is read likewise: the loader
    will say so."""
    size = shard.stat().st_size
    yield f"{shard.name} {size}\n".encode()
    with shard.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        start = min(8 + min(length, MAX_HEADER_BYTES), size)
        file.seek(0)
        yield file.read(start)
        last = max(start, size - SAMPLE_BYTES)
        for step in range(SAMPLES):
            file.seek(start + (last - start) * step // (SAMPLES - 1))
            yield file.read(SAMPLE_BYTES)


def _short(digest: str) -> str:
    return digest[:16]
