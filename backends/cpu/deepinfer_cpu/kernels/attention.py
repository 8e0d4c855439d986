"""Sparse attention, the indexer and key-value compression. Meanings: deepinfer_core/ops."""

from __future__ import annotations

from torch import Tensor

from deepinfer_core.interfaces.ops import PagedView, Rows, WindowView
from deepinfer_cpu._kernels import Table


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
        return self._table.sparse_attention(q, rows, window, entries, selected, sink, scale)

    def index_scores(self, q: Tensor, weights: Tensor, keys: PagedView, rows: Rows, num_entries: int) -> Tensor:
        """[T, H, d] -> float32 [T, num_entries]."""
        return self._table.index_scores(q, weights, keys, rows, num_entries)

    def select_blocks(self, scores: Tensor, visible: Tensor, block_size: int, top_blocks: int) -> Tensor:
        """[T, N] -> bool [T, ceil(N / block_size)]."""
        return self._table.select_blocks(scores, visible, block_size, top_blocks)

    def select_topk(self, scores: Tensor, top_k: int, blocks: Tensor | None = None, block_size: int = 1) -> Tensor:
        """[T, N] -> int32 [T, top_k]."""
        return self._table.select_topk(scores, top_k, blocks, block_size)

    def compress_kv(self, u: Tensor, gate: Tensor, pending: Tensor, rows: Rows, ratio: int, ring_rows: int) -> Tensor:
        """[T, d] -> float32 [T, d]."""
        return self._table.compress_kv(u, gate, pending, rows, ratio, ring_rows)
