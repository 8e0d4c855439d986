"""Sparse attention over a sliding window and selected compressed entries, and its cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpCase, OpSpec, PagedView, RowFormat, Rows, WindowView
from deepinfer_core.ops.cases import MIXED, SUMS, Maker, Segment
from deepinfer_core.ops.formats import decode_rows
from deepinfer_core.ops.rows import entry_rows, visible_entries, window_rows


def sparse_attention(
    q: Tensor,
    rows: Rows,
    window: WindowView,
    entries: PagedView | None,
    selected: Tensor | None,
    sink: Tensor,
    scale: float,
) -> Tensor:
    """q [T, H, d] -> [T, H, d]: one softmax over each row's window and selected entries; a key is its own value.

    selected int32 [T, k] holds entries of `entries`, -1 for none. sink [H] is a further logit, not scaled, that takes
    probability and gives no value. A row that sees nothing gives zeros.
    """
    dim = q.shape[-1]
    index, visible = window_rows(rows, window)
    keys = decode_rows(window.pool[index], window.format, dim)
    if entries is not None and selected is not None:
        chosen = (selected >= 0) & (rows.slot >= 0)[:, None]
        picked = entries.pool[entry_rows(rows, entries, selected, chosen)]
        keys = torch.cat([keys, decode_rows(picked, entries.format, dim)], dim=1)
        visible = torch.cat([visible, chosen], dim=1)
    keys = torch.where(visible[..., None], keys, 0.0)
    logits = torch.einsum("thd,tnd->thn", q.float(), keys) * scale
    logits = torch.where(visible[:, None], logits, float("-inf"))
    sinks = sink.float()[None, :, None].expand(q.shape[0], -1, 1)
    weights = torch.softmax(torch.cat([logits, sinks], dim=-1), dim=-1)[..., :-1]
    return torch.einsum("thn,tnd->thd", weights, keys).to(q.dtype)


def sparse_attention_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Window alone and with entries, in stored and plain formats; zero rows, padding rows, rows that select nothing.

    Whatever a row may not look at is NaN."""
    make = Maker(device, dtype, seed)
    plain, stored = (RowFormat.F32, RowFormat.F32), (RowFormat.FP8_E8M0_32, RowFormat.FP4_E4M3_16)
    bf16 = (RowFormat.BF16, RowFormat.BF16)
    for window_format, entry_format in (plain, stored, bf16):
        for ratio in (0, 1, 2):
            for name, segments in (("no rows", ()), ("mixed rows", MIXED)):
                args = _attention_args(make, segments, window_format, entry_format, ratio)
                yield OpCase(f"{window_format.value}/{entry_format.value}, ratio {ratio}, {name}", args)


def _attention_args(
    make: Maker, segments: Sequence[Segment], window_format: RowFormat, entry_format: RowFormat, ratio: int
) -> tuple[Tensor, Rows, WindowView, PagedView | None, Tensor | None, Tensor, float]:
    """Inputs for one step; ratio 0 has no compressed entries."""
    heads, dim, top_k = 3, 64, 6
    rows = make.rows(segments, padding=2 if segments else 0)
    window = make.window(segments, window_format, dim, window=9, ring_rows=11)
    q, sink = make.normal(len(rows), heads, dim), make.normal(heads, dtype=torch.float32)
    if ratio == 0:
        return q, rows, window, None, None, sink, dim**-0.5
    entries = make.paged(segments, entry_format, dim, ratio, 8)
    drawn = make.integers(0, 41, len(rows), top_k, dtype=torch.int32)
    selected = torch.where(drawn < visible_entries(rows, ratio)[:, None], drawn, -1).to(torch.int32)
    return q, rows, window, entries, selected, sink, dim**-0.5


SPECS = (OpSpec("sparse_attention", "attention", sparse_attention, sparse_attention_cases, SUMS),)
