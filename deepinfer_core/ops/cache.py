"""Reading and writing pools and the token history. Where a row belongs is the caller's business (see rows.py)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpCase, OpSpec, RowFormat, Rows
from deepinfer_core.ops.cases import EXACT, MIXED, Maker, Segment
from deepinfer_core.ops.formats import decode_rows, encode_rows
from deepinfer_core.ops.rows import ring_index, step_rows


def write_rows(pool: Tensor, x: Tensor, dest: Tensor, format: RowFormat) -> None:
    """Store x [T, d] in rows dest [T] of pool uint8 [rows, row bytes]; -1 skips. No row may be named twice."""
    kept = dest >= 0
    pool[dest[kept].long()] = encode_rows(x[kept], format)


def read_rows(pool: Tensor, index: Tensor, format: RowFormat, dim: int) -> Tensor:
    """float32 [..., dim]: what the rows index[...] of a pool hold; zeros where the index is -1."""
    stored = decode_rows(pool[index.long().clamp(min=0)], format, dim)
    return torch.where((index >= 0)[..., None], stored, 0.0)


def copy_rows(pool: Tensor, source: Tensor, dest: Tensor) -> None:
    """Copy rows source [M] of a pool to rows dest [M]; dest -1 skips, whatever its source.

    No row may be a destination twice, or both a destination and a source.
    """
    kept = dest >= 0
    pool[dest[kept].long()] = pool[source[kept].long()]


def gather_history(tokens: Tensor, rows: Rows, history: Tensor, n: int) -> Tensor:
    """int64 [T, n]: the tokens at each row's position, the one before, ...; -1 before the start and for padding rows.

    tokens [T] are the step's own; history [slots, m], m >= n - 1, has a slot's token of an earlier position p at p % m.
    """
    position = rows.position.long()[:, None] - torch.arange(n, device=tokens.device)
    fresh, inside = step_rows(rows, position)
    past = history.flatten()[ring_index(rows, position, history.shape[1])]
    found = torch.where(inside, tokens.long()[fresh], past.long())
    return torch.where((position >= 0) & (rows.slot >= 0)[:, None], found, -1)


def write_rows_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Each format: zero rows, rows out of order, some or all skipped."""
    make = Maker(device, dtype, seed)
    for format in RowFormat:
        for name, dest in (("no rows", []), ("rows", [8, -1, 0, 3, -1]), ("all skipped", [-1, -1])):
            pool = make.integers(0, 256, 9, format.row_bytes(64), dtype=torch.uint8)
            target = torch.tensor(dest, dtype=torch.int64, device=device)
            yield OpCase(f"{format.value}, {name}", (pool, make.normal(len(dest), 64), target, format))


def read_rows_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Each format: zero rows, a matrix of indices with repeats and -1."""
    make = Maker(device, dtype, seed)
    for format in RowFormat:
        pool = encode_rows(make.normal(9, 64, dtype=torch.float32), format)
        for shape in ((0,), (4, 3)):
            yield OpCase(f"{format.value}, {shape}", (pool, make.integers(-1, 9, *shape), format, 64))


def copy_rows_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """No rows, one source for several destinations, skipped rows with senseless sources."""
    make = Maker(device, dtype, seed)
    for name, source, dest in (("no rows", [], []), ("rows", [1, 1, -9, 7], [0, 8, -1, 3])):
        pool = make.integers(0, 256, 9, 17, dtype=torch.uint8)
        yield OpCase(name, (pool, torch.tensor(source, device=device).long(), torch.tensor(dest, device=device).long()))


def gather_history_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Zero rows, chunks and decode rows with padding, positions before the start, n = 1."""
    make = Maker(device, dtype, seed)
    steps: tuple[tuple[str, tuple[Segment, ...], int], ...] = (
        ("no rows", (), 4),
        ("mixed", MIXED, 4),
        ("one", MIXED, 1),
    )
    for name, segments, n in steps:
        rows = make.rows(segments, padding=2 if segments else 0)
        yield OpCase(name, (make.integers(0, 500, len(rows)), rows, make.integers(0, 500, 5, 6), n))


SPECS = (
    OpSpec("write_rows", "cache", write_rows, write_rows_cases, EXACT, mutates=("pool",)),
    OpSpec("read_rows", "cache", read_rows, read_rows_cases, EXACT),
    OpSpec("copy_rows", "cache", copy_rows, copy_rows_cases, EXACT, mutates=("pool",)),
    OpSpec("gather_history", "cache", gather_history, gather_history_cases, EXACT),
)
