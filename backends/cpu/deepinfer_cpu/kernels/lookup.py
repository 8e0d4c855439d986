"""Embeddings, n-gram memory, past tokens and pool rows. Meanings: deepinfer_core/ops."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import RowFormat, Rows, Weight
from deepinfer_cpu._kernels import Table


class Lookup:
    """The kernels of linear.py's embedding, of engram.py and of cache.py's reads, on one instruction set."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def embedding(self, tokens: Tensor, weight: Weight, dtype: torch.dtype) -> Tensor:
        """[T] -> [T, D]."""
        return self._table.embedding(tokens, weight, dtype)

    def engram_lookup(self, table: Weight, index: Tensor, dtype: torch.dtype) -> Tensor:
        """[T, C] -> [T, C*d]."""
        return self._table.engram_lookup(table, index, dtype)

    def hash_ngrams(self, classes: Tensor, multipliers: Tensor, primes: Tensor, offsets: Tensor, pad: int) -> Tensor:
        """[T, n] -> int64 [T, (n-1)*h]."""
        return self._table.hash_ngrams(classes, multipliers, primes, offsets, pad)

    def gather_history(self, tokens: Tensor, rows: Rows, history: Tensor, n: int) -> Tensor:
        """[T] -> int64 [T, n]."""
        return self._table.gather_history(tokens, rows, history, n)

    def read_rows(self, pool: Tensor, index: Tensor, format: RowFormat, dim: int) -> Tensor:
        """[...] -> float32 [..., dim]."""
        return self._table.read_rows(pool, index, format, dim)
