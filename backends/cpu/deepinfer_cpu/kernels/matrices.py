"""Linear layers and the mixture of experts, over weights in their stored formats. Meanings: deepinfer_core/ops."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import Weight
from deepinfer_cpu._kernels import Table
from deepinfer_cpu.kernels.arguments import as_type, empty, f32, weight_tuple


class Matrices:
    """The kernels of linear.py and moe.py, on one instruction set."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def linear(self, x: Tensor, weight: Weight, quantise: bool, out_dtype: torch.dtype | None = None) -> Tensor:
        """[T, K] -> [T, N]."""
        a, y = f32(x), empty(x.shape[0], weight.out_features)
        self._table.linear(a.data_ptr(), a.shape[0], weight_tuple(weight), quantise, y.data_ptr())
        return as_type(y, out_dtype or x.dtype)

    def grouped_linear(self, x: Tensor, weight: Weight) -> Tensor:
        """[T, G, K] -> [T, G, N]."""
        a, groups = f32(x), x.shape[1]
        y = empty(x.shape[0], groups, weight.out_features // groups)
        self._table.grouped_linear(a.data_ptr(), a.shape[0], groups, weight_tuple(weight), y.data_ptr())
        return as_type(y, x.dtype)

    def lm_head(self, x: Tensor, weight: Weight) -> Tensor:
        """[T, D] -> float32 [T, V]."""
        return self.linear(f32(x), weight, False)

    def gated_mlp(self, x: Tensor, w1: Weight, w3: Weight, w2: Weight, limit: float, quantise: bool) -> Tensor:
        """[T, D] -> [T, D]."""
        a, y = f32(x), empty(x.shape[0], w2.out_features)
        weights = weight_tuple(w1), weight_tuple(w3), weight_tuple(w2)
        self._table.gated_mlp(a.data_ptr(), a.shape[0], *weights, limit, quantise, y.data_ptr())
        return as_type(y, x.dtype)

    def route(self, x: Tensor, gate: Weight, bias: Tensor, top_k: int, scale: float) -> tuple[Tensor, Tensor]:
        """[T, D] -> experts int32 [T, k], weights [T, k]."""
        a, b = f32(x), f32(bias)
        experts = torch.empty(x.shape[0], top_k, dtype=torch.int32, device="cpu")
        weights = empty(x.shape[0], top_k)
        self._table.route(
            a.data_ptr(),
            a.shape[0],
            weight_tuple(gate),
            b.data_ptr(),
            top_k,
            scale,
            experts.data_ptr(),
            weights.data_ptr(),
        )
        return experts, weights

    def moe_permute(self, experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
        """[T, k] -> order int32 [T*k], offsets int32 [E+1]."""
        e = as_type(experts, torch.int32)
        order = torch.empty(e.numel(), dtype=torch.int32, device="cpu")
        offsets = torch.empty(num_experts + 1, dtype=torch.int32, device="cpu")
        self._table.moe_permute(e.data_ptr(), e.numel(), num_experts, order.data_ptr(), offsets.data_ptr())
        return order, offsets

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
        a, o, b, w = f32(x), as_type(order, torch.int32), as_type(offsets, torch.int32), f32(weights)
        y = empty(o.shape[0], x.shape[1])
        self._table.experts(
            a.data_ptr(),
            a.shape[0],
            o.data_ptr(),
            b.data_ptr(),
            w.data_ptr(),
            w.shape[1],
            w1.data.shape[0],
            weight_tuple(w1),
            weight_tuple(w3),
            weight_tuple(w2),
            limit,
            quantise,
            y.data_ptr(),
        )
        return y

    def moe_combine(self, y: Tensor, order: Tensor, top_k: int) -> Tensor:
        """[T*k, D] -> [T, D]."""
        a, o = f32(y), as_type(order, torch.int32)
        rows, dim = a.shape[0] // top_k, a.shape[1]
        out = empty(rows, dim)
        self._table.moe_combine(a.data_ptr(), o.data_ptr(), rows, top_k, dim, out.data_ptr())
        return out
