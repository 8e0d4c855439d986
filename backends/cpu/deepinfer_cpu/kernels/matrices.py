"""Linear layers and the mixture of experts, over weights in their stored formats. Meanings: deepinfer_core/ops."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import Weight
from deepinfer_cpu._kernels import Table


class Matrices:
    """The kernels of linear.py and moe.py, on one instruction set."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def linear(self, x: Tensor, weight: Weight, quantise: bool, out_dtype: torch.dtype | None = None) -> Tensor:
        """[T, K] -> [T, N]."""
        return self._table.linear(x, weight, quantise, out_dtype)

    def grouped_linear(self, x: Tensor, weight: Weight) -> Tensor:
        """[T, G, K] -> [T, G, N]."""
        return self._table.grouped_linear(x, weight)

    def lm_head(self, x: Tensor, weight: Weight) -> Tensor:
        """[T, D] -> float32 [T, V]."""
        return self._table.lm_head(x, weight)

    def gated_mlp(self, x: Tensor, w1: Weight, w3: Weight, w2: Weight, limit: float, quantise: bool) -> Tensor:
        """[T, D] -> [T, D]."""
        return self._table.gated_mlp(x, w1, w3, w2, limit, quantise)

    def route(self, x: Tensor, gate: Weight, bias: Tensor, top_k: int, scale: float) -> tuple[Tensor, Tensor]:
        """[T, D] -> experts int32 [T, k], weights [T, k]."""
        return self._table.route(x, gate, bias, top_k, scale)

    def moe_permute(self, experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
        """[T, k] -> order int32 [T*k], offsets int32 [E+1]."""
        return self._table.moe_permute(experts, num_experts)

    def experts(
        self,
        x: Tensor,
        order: Tensor,
        offsets: Tensor,
        weights: Tensor,
        w1: Weight,
        w3: Weight,
        w2: Weight,
        limit: float,
        quantise: bool,
    ) -> Tensor:
        """[T, D] -> float32 [T*k, D] in sorted order."""
        return self._table.experts(x, order, offsets, weights, w1, w3, w2, limit, quantise)

    def moe_combine(self, y: Tensor, order: Tensor, top_k: int) -> Tensor:
        """[T*k, D] -> [T, D]."""
        return self._table.moe_combine(y, order, top_k)
