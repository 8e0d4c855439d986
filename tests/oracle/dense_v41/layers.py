"""Building blocks without a subject of their own: norm, matrices, rotary positions, the gated MLP's activation."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dense_v41 import quantise
from dense_v41.config import DenseConfig
from dense_v41.quantise import Quantisation, wide


class RMSNorm(nn.Module):
    """weight * x * rsqrt(mean(x**2) + eps) over the last dimension, in float32, cast back."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        y = wide(x)
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (wide(self.weight) * y).to(x.dtype)


class Matrix(nn.Module):
    """x @ weight.T with a BF16 weight and an unquantised input."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * inputs**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype))


class Fp8Matrix(Matrix):
    """x @ weight.T with a weight in 32x32 FP8 tiles; the input is rounded to FP8 in blocks of 32."""

    def __init__(self, inputs: int, outputs: int, quantisation: Quantisation) -> None:
        super().__init__(inputs, outputs)
        self.quantisation = quantisation

    def rounded_weight(self) -> Tensor:
        return quantise.fp8_matrix(self.weight) if self.quantisation.weights else self.weight

    def forward(self, x: Tensor) -> Tensor:
        if self.quantisation.activations:
            x = quantise.fp8(x)
        return F.linear(x, self.rounded_weight().to(x.dtype))


def rotary_frequencies(config: DenseConfig, layer: int) -> Tensor:
    """float32 [rope/2]. Layers with compressed entries use their own base and YaRN, without its magnitude factor."""
    size = config.qk_rope_head_dim
    compressed = config.ratio(layer) > 0
    theta = config.compress_rope_theta if compressed else config.rope_theta
    frequencies = 1.0 / theta ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
    if not compressed or config.rope_scaling is None:
        return frequencies
    scaling = config.rope_scaling

    def dimension(turns: float) -> float:
        length = scaling["original_max_position_embeddings"]
        return size * math.log(length / (2 * math.pi * turns)) / (2 * math.log(theta))

    low = max(math.floor(dimension(scaling["beta_fast"])), 0)
    high = min(math.ceil(dimension(scaling["beta_slow"])), size - 1)
    ramp = ((torch.arange(size // 2, dtype=torch.float32) - low) / max(high - low, 1e-3)).clamp(0, 1)
    return frequencies / scaling["factor"] * ramp + frequencies * (1 - ramp)


def rotate(x: Tensor, position: Tensor, frequencies: Tensor, inverse: bool = False) -> Tensor:
    """Turn the last 2 * len(frequencies) numbers of x in adjacent pairs; `position` broadcasts to x.shape[:-1]."""
    angle = position.unsqueeze(-1).to(frequencies.dtype) * frequencies
    cos, sin = angle.cos(), angle.sin() * (-1 if inverse else 1)
    size = 2 * frequencies.shape[0]
    even, odd = wide(x[..., -size:]).unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)
    return torch.cat((x[..., :-size], turned.to(x.dtype)), -1)


def gated(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """silu(min(gate, limit)) * clamp(up, -limit, limit), at least float32."""
    return F.silu(wide(gate).clamp(max=limit)) * wide(up).clamp(-limit, limit)
