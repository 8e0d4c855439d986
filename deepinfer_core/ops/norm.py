"""Normalisation: the meaning of rms_norm and its cases."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpCase, OpSpec
from deepinfer_core.ops.cases import CLOSE, Maker


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """weight * x * rsqrt(mean(x^2) + eps) over the rows of x [T, D], in float32 and rounded once to x's dtype."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (weight.float() * (wide * scale)).to(x.dtype)


def rms_norm_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Zero rows, odd sizes, a row of zeros, very small and very large rows."""
    make = Maker(device, dtype, seed)
    for rows, dim in ((0, 64), (1, 7), (5, 64), (33, 512)):
        yield OpCase(f"{rows}x{dim}", (make.normal(rows, dim), make.normal(dim), 1e-6))
    x = make.normal(3, 64) * torch.tensor([[0.0], [1e-4], [1e4]], device=device, dtype=dtype)
    yield OpCase("row of zeros, tiny and huge rows", (x, make.normal(64, dtype=torch.bfloat16), 1e-20))


SPECS = (OpSpec("rms_norm", "norm", rms_norm, rms_norm_cases, CLOSE),)
