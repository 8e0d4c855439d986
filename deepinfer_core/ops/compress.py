"""Key-value compression: the gated mean of a group of tokens, and its cases."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpCase, OpSpec, RowFormat, Rows
from deepinfer_core.ops.cases import CLOSE, MIXED, Maker, Segment
from deepinfer_core.ops.formats import decode_rows, encode_rows
from deepinfer_core.ops.rows import ring_index, step_rows


def compress_kv(u: Tensor, gate: Tensor, pending: Tensor, rows: Rows, ratio: int, ring_rows: int) -> Tensor:
    """u, gate [T, d] -> float32 [T, d]: for each channel, the mean of u over the `ratio` positions that end at the
    row's own, weighted by the softmax of gate over them. Meaningless where (position + 1) % ratio != 0.

    Positions before the step come from `pending`, uint8 [slots * ring_rows, 8*d]: float32 rows of u then gate, position
    p of a slot at p % ring_rows. Call it before the step's own rows are written there.
    """
    dim = u.shape[1]
    group = rows.position.long()[:, None] + torch.arange(1 - ratio, 1, device=u.device)
    fresh, inside = step_rows(rows, group)
    before = decode_rows(pending[ring_index(rows, group, ring_rows)], RowFormat.F32, 2 * dim)
    values = torch.where(inside[..., None], u[fresh].float(), before[..., :dim])
    gates = torch.where(inside[..., None], gate[fresh].float(), before[..., dim:])
    return (values * torch.softmax(gates, dim=1)).sum(1)


def compress_kv_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Rows that all end a group, since other results mean nothing: ratios 1, 2 and 4, groups begun in earlier steps."""
    make = Maker(device, dtype, seed)
    for ratio in (1, 2, 4):
        ring_rows, dim = ratio + 2, 24
        ends = tuple(Segment(slot, end * ratio - 1, 1) for slot, end in ((2, 1), (0, 9), (3, 4)))
        for name, segments in (("no rows", ()), ("decode rows", ends)):
            yield OpCase(f"ratio {ratio}, {name}", _compress_args(make, segments, ratio, ring_rows, dim))
    yield OpCase("ratio 1, chunks", _compress_args(make, MIXED, 1, 3, 7))


def _compress_args(
    make: Maker, segments: tuple[Segment, ...], ratio: int, ring_rows: int, dim: int
) -> tuple[Tensor, Tensor, Tensor, Rows, int, int]:
    rows = make.rows(segments)
    pending = torch.full((5 * ring_rows, 8 * dim), 0xFF, dtype=torch.uint8, device=make.device)
    past = [
        s.slot * ring_rows + position % ring_rows
        for s in segments
        for position in range(max(0, s.first - ratio + 1), s.first)
    ]
    pending[past] = encode_rows(make.normal(len(past), 2 * dim, dtype=torch.float32), RowFormat.F32)
    f32 = torch.float32
    return (
        make.normal(len(rows), dim, dtype=f32),
        make.normal(len(rows), dim, dtype=f32),
        pending,
        rows,
        ratio,
        ring_rows,
    )


SPECS = (OpSpec("compress_kv", "compress", compress_kv, compress_kv_cases, CLOSE),)
