"""Sparse attention, the indexer and key-value compression. Meanings: deepinfer_core/ops."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import PagedView, Rows, WindowView
from deepinfer_cpu._kernels import Table
from deepinfer_cpu.kernels.arguments import as_type, empty, f32, paged_tuple, rows_tuple, window_tuple


class Attention:
    """The kernels of attention.py, index.py and compress.py, on one instruction set."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def sparse_attention(
        self,
        q: Tensor,
        rows: Rows,
        window: WindowView,
        entries: PagedView | None,
        selected: Tensor | None,
        sink: Tensor,
        scale: float,
    ) -> Tensor:
        """[T, H, d] -> [T, H, d]."""
        a, s, y = f32(q), f32(sink), empty(*q.shape)
        chosen = None if entries is None or selected is None else as_type(selected, torch.int32)
        self._table.sparse_attention(
            a.data_ptr(),
            q.shape[1],
            q.shape[2],
            rows_tuple(rows),
            window_tuple(window),
            paged_tuple(entries) if entries is not None and chosen is not None else None,
            0 if chosen is None else chosen.data_ptr(),
            0 if chosen is None else chosen.shape[1],
            s.data_ptr(),
            scale,
            y.data_ptr(),
        )
        return as_type(y, q.dtype)

    def index_scores(self, q: Tensor, weights: Tensor, keys: PagedView, rows: Rows, num_entries: int) -> Tensor:
        """[T, H, d] -> float32 [T, num_entries]."""
        a, w, y = f32(q), f32(weights), empty(q.shape[0], num_entries)
        self._table.index_scores(
            a.data_ptr(),
            w.data_ptr(),
            q.shape[1],
            q.shape[2],
            paged_tuple(keys),
            rows_tuple(rows),
            num_entries,
            y.data_ptr(),
        )
        return y

    def select_blocks(self, scores: Tensor, visible: Tensor, block_size: int, top_blocks: int) -> Tensor:
        """[T, N] -> bool [T, ceil(N / block_size)]."""
        a, v = f32(scores), as_type(visible, torch.int32)
        rows, entries = a.shape
        keep = torch.empty(rows, -(-entries // block_size), dtype=torch.bool, device="cpu")
        self._table.select_blocks(a.data_ptr(), rows, entries, v.data_ptr(), block_size, top_blocks, keep.data_ptr())
        return keep

    def select_topk(self, scores: Tensor, top_k: int, blocks: Tensor | None = None, block_size: int = 1) -> Tensor:
        """[T, N] -> int32 [T, top_k]."""
        a = f32(scores)
        b = None if blocks is None else as_type(blocks, torch.bool)
        rows, entries = a.shape
        selected = torch.empty(rows, top_k, dtype=torch.int32, device="cpu")
        self._table.select_topk(
            a.data_ptr(),
            rows,
            entries,
            top_k,
            0 if b is None else b.data_ptr(),
            0 if b is None else b.shape[1],
            block_size,
            selected.data_ptr(),
        )
        return selected

    def compress_kv(self, u: Tensor, gate: Tensor, pending: Tensor, rows: Rows, ratio: int, ring_rows: int) -> Tensor:
        """[T, d] -> float32 [T, d]."""
        a, g, y = f32(u), f32(gate), empty(*u.shape)
        self._table.compress_kv(
            a.data_ptr(),
            g.data_ptr(),
            u.shape[1],
            pending.data_ptr(),
            rows_tuple(rows),
            ratio,
            ring_rows,
            y.data_ptr(),
        )
        return y
