"""Embeddings, n-gram memory, past tokens and pool rows. Meanings: deepinfer_core/ops."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import RowFormat, Rows, Weight
from deepinfer_cpu._kernels import Table
from deepinfer_cpu.kernels.arguments import ROW_NUMBER, as_type, empty, rows_tuple, weight_tuple


class Lookup:
    """The kernels of linear.py's embedding, of engram.py and of cache.py's reads, on one instruction set."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def embedding(self, tokens: Tensor, weight: Weight, dtype: torch.dtype) -> Tensor:
        """[T] -> [T, D]."""
        t, y = as_type(tokens, torch.int64), empty(tokens.shape[0], weight.in_features)
        self._table.embedding(t.data_ptr(), t.shape[0], weight_tuple(weight), y.data_ptr())
        return as_type(y, dtype)

    def engram_lookup(self, table: Weight, index: Tensor, dtype: torch.dtype) -> Tensor:
        """[T, C] -> [T, C*d]."""
        i, y = as_type(index, torch.int64), empty(index.shape[0], index.shape[1] * table.in_features)
        self._table.engram_lookup(weight_tuple(table), i.data_ptr(), i.numel(), y.data_ptr())
        return as_type(y, dtype)

    def hash_ngrams(self, classes: Tensor, multipliers: Tensor, primes: Tensor, offsets: Tensor, pad: int) -> Tensor:
        """[T, n] -> int64 [T, (n-1)*h]."""
        c, m, p, o = (as_type(x, torch.int64) for x in (classes, multipliers, primes, offsets))
        rows, n = c.shape
        out = torch.empty(rows, p.shape[0], dtype=torch.int64, device="cpu")
        self._table.hash_ngrams(
            c.data_ptr(),
            rows,
            n,
            m.data_ptr(),
            p.data_ptr(),
            o.data_ptr(),
            p.shape[0],
            pad,
            out.data_ptr(),
        )
        return out

    def gather_history(self, tokens: Tensor, rows: Rows, history: Tensor, n: int) -> Tensor:
        """[T] -> int64 [T, n]."""
        t, h = as_type(tokens, torch.int64), as_type(history, torch.int64)
        out = torch.empty(t.shape[0], n, dtype=torch.int64, device="cpu")
        self._table.gather_history(t.data_ptr(), rows_tuple(rows), h.data_ptr(), h.shape[1], n, out.data_ptr())
        return out

    def read_rows(self, pool: Tensor, index: Tensor, format: RowFormat, dim: int) -> Tensor:
        """[...] -> float32 [..., dim]."""
        i, y = as_type(index, torch.int64), empty(*index.shape, dim)
        self._table.read_rows(
            pool.data_ptr(), pool.shape[1], i.data_ptr(), i.numel(), dim, ROW_NUMBER[format], y.data_ptr()
        )
        return y
