"""The mixture of experts: sqrt-softplus routing and clamped SwiGLU experts, all experts in batched products."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dense_v41 import quantise
from dense_v41.config import DenseConfig
from dense_v41.layers import Fp8Matrix, gated
from dense_v41.quantise import Quantisation, wide


class Gate(nn.Module):
    """Chooses experts for each row. The biases steer the choice only; they are balanced by hand, not by gradient."""

    bias: Tensor
    bias_vl: Tensor

    def __init__(self, config: DenseConfig, experts: int, top_k: int) -> None:
        super().__init__()
        self.top_k, self.factor = top_k, config.routed_scaling_factor
        self.weight = nn.Parameter(torch.randn(experts, config.hidden_size) * config.hidden_size**-0.5)
        self.register_buffer("bias", torch.zeros(experts))
        self.register_buffer("bias_vl", torch.zeros(experts))  # for image tokens, which this model never sees

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [R, D] -> (experts int64 [R, k], weights [R, k] at least float32); ties go to the lower expert."""
        affinity = F.softplus(wide(x) @ wide(self.weight).T).sqrt()
        chosen = (affinity + self.bias).detach().sort(dim=-1, descending=True, stable=True).indices[:, : self.top_k]
        weights = affinity.gather(1, chosen)
        return chosen, weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.factor


class SharedExpert(nn.Module):
    """The expert that every row passes."""

    def __init__(self, config: DenseConfig, quantisation: Quantisation) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.moe_intermediate_size
        self.limit = config.swiglu_limit
        self.w1 = Fp8Matrix(hidden, inner, quantisation)
        self.w3 = Fp8Matrix(hidden, inner, quantisation)
        self.w2 = Fp8Matrix(inner, hidden, quantisation)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(gated(self.w1(x), self.w3(x), self.limit).to(x.dtype))


class Experts(nn.Module):
    """The routed experts, stacked: w1, w3 [E, F, D] and w2 [E, D, F], in FP4 with one scale for 32 inputs."""

    def __init__(self, config: DenseConfig, experts: int, quantisation: Quantisation) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.moe_intermediate_size
        self.limit, self.quantisation = config.swiglu_limit, quantisation
        self.w1 = nn.Parameter(torch.randn(experts, inner, hidden) * hidden**-0.5)
        self.w3 = nn.Parameter(torch.randn(experts, inner, hidden) * hidden**-0.5)
        self.w2 = nn.Parameter(torch.randn(experts, hidden, inner) * inner**-0.5)

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        """x [E, C, D], each expert's rows, and their routing weights [E, C, 1] -> [E, C, D]."""
        rows = self._rounded(x)
        gate, up = rows @ self._matrix(self.w1, x), rows @ self._matrix(self.w3, x)
        hidden = (gated(gate, up, self.limit) * weights).to(x.dtype)
        return self._rounded(hidden) @ self._matrix(self.w2, x)

    def _rounded(self, x: Tensor) -> Tensor:
        return quantise.fp8(x) if self.quantisation.activations else x

    def _matrix(self, weight: Tensor, x: Tensor) -> Tensor:
        return (quantise.fp4(weight) if self.quantisation.weights else weight).to(x.dtype).mT


class MoE(nn.Module):
    """Routed experts plus the shared one. `load` counts the rows each expert had in the last forward."""

    load: Tensor

    def __init__(self, config: DenseConfig, experts: int, top_k: int, quantisation: Quantisation) -> None:
        super().__init__()
        self.gate = Gate(config, experts, top_k)
        self.experts = Experts(config, experts, quantisation)
        self.shared_experts = SharedExpert(config, quantisation)
        self.register_buffer("load", torch.zeros(experts, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., D] -> [..., D]. Rows are gathered by expert into [E, C, D], C being the fullest expert's count."""
        rows = x.flatten(0, -2)
        chosen, weights = self.gate(rows)
        order = chosen.flatten().argsort(stable=True)
        expert, row = chosen.flatten()[order], order // self.gate.top_k
        self.load = torch.bincount(expert, minlength=self.load.shape[0])
        place = torch.arange(len(order), device=x.device) - (self.load.cumsum(0) - self.load)[expert]
        capacity = int(self.load.max())
        slot = expert * capacity + place
        gathered = x.new_zeros(len(self.load) * capacity, x.shape[-1]).index_copy(0, slot, rows[row])
        shares = weights.new_zeros(len(gathered)).index_copy(0, slot, weights.flatten()[order])
        routed = self.experts(gathered.unflatten(0, (-1, capacity)), shares.view(-1, capacity, 1)).flatten(0, 1)
        total = wide(self.shared_experts(rows)).index_add(0, row, wide(routed[slot]))
        return total.to(x.dtype).view_as(x)
