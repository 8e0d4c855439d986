"""Safetensors headers: where each tensor of a shard lies. Checked against the file before any tensor is read.

A file is 8 bytes of header length (little endian), the header (JSON), then the data, which the header's offsets count
from.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from deepinfer_core.loading.faults import Faults

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
ITEM_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One stored tensor: bytes start .. end - 1 of the file `shard`, in row-major order."""

    name: str
    shard: Path
    dtype: str  # the format's own name, such as "BF16" or "F8_E4M3"
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.start


def read_header(shard: Path, faults: Faults) -> dict[str, TensorEntry]:
    """The sound tensors of a shard by name. What is wrong is added to `faults`, with the shard's name."""
    size = shard.stat().st_size
    header, data_start = _parse(shard, size, faults)
    entries = {}
    for name, fields in header.items():
        if name == "__metadata__":
            continue
        entry = _entry(shard, name, fields, data_start, faults)
        if entry is not None:
            entries[name] = entry
    if len(entries) == len(header.keys() - {"__metadata__"}):
        _check_extents(shard, sorted(entries.values(), key=lambda e: (e.start, e.end)), data_start, size, faults)
    return entries


def _parse(shard: Path, size: int, faults: Faults) -> tuple[dict[str, Any], int]:
    if size < 8:
        faults.add(f"{shard.name}: {size} bytes are too few for a safetensors file")
        return {}, 0
    with shard.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(size - 8, MAX_HEADER_BYTES):
            faults.add(f"{shard.name}: its header should have {length} bytes and the file has {size}: not safetensors")
            return {}, 0
        text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=lambda pairs: _unique(shard, pairs, faults))
    except (ValueError, RecursionError) as error:
        faults.add(f"{shard.name}: its header is not JSON ({error})")
        return {}, 0
    if not isinstance(header, dict):
        faults.add(f"{shard.name}: its header is not a JSON object")
        return {}, 0
    return header, 8 + length


def _unique(shard: Path, pairs: list[tuple[str, Any]], faults: Faults) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            faults.add(f"{shard.name}: {name} is in the header twice")
        found[name] = value
    return found


def _entry(shard: Path, name: str, fields: Any, data_start: int, faults: Faults) -> TensorEntry | None:
    try:
        dtype, shape, (begin, end) = fields["dtype"], fields["shape"], fields["data_offsets"]
        whole = [begin, end, *shape]
    except (KeyError, TypeError, ValueError):
        faults.add(f"{shard.name}: {name} needs a dtype, a shape and two data_offsets, and has {fields!r:.120}")
        return None
    if any(isinstance(number, bool) or not isinstance(number, int) or number < 0 for number in whole):
        faults.add(
            f"{shard.name}: {name} has shape {shape} and offsets {begin}, {end}: whole numbers from 0 are needed"
        )
        return None
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        faults.add(f"{shard.name}: {name} has the unknown dtype {dtype!r}")
        return None
    needed = prod(shape) * ITEM_BYTES[dtype]
    if end - begin != needed:
        faults.add(f"{shard.name}: {name} ({dtype} {list(shape)}) needs {needed} bytes and has {end - begin}")
        return None
    return TensorEntry(name, shard, dtype, tuple(shape), data_start + begin, data_start + end)


def _check_extents(shard: Path, entries: list[TensorEntry], data_start: int, size: int, faults: Faults) -> None:
    """The tensors must fill the rest of the file exactly, without gap or overlap."""
    reached = data_start
    for before, entry in zip([None, *entries], entries, strict=False):
        if entry.start < reached:
            faults.add(f"{shard.name}: {entry.name} overlaps {before.name if before else 'the header'}")
        elif entry.start > reached:
            faults.add(f"{shard.name}: {entry.start - reached} bytes before {entry.name} belong to no tensor")
        reached = max(reached, entry.end)
    if reached > size:
        faults.add(f"{shard.name}: the file is cut off: {size} bytes where its header needs {reached}")
    elif reached < size:
        faults.add(f"{shard.name}: {size - reached} bytes at the end belong to no tensor")
