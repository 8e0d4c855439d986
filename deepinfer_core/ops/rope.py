"""Rotary position embedding: the meaning of apply_rope and its cases."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpCase, OpSpec
from deepinfer_core.ops.cases import CLOSE, Maker


def apply_rope(x: Tensor, position: Tensor, inv_freq: Tensor, inverse: bool = False) -> Tensor:
    """Rotate the last r numbers of each vector of x [T, R] or [T, H, R] by its row's position.

    inv_freq [r/2] holds radians a position; pair i is numbers (2i, 2i+1) of the last r. Angles are float32 products.
    `inverse` rotates back.
    """
    angle = position.float()[:, None] * inv_freq
    cos, sin = angle.cos(), angle.sin()
    if inverse:
        sin = -sin
    if x.dim() == 3:
        cos, sin = cos[:, None], sin[:, None]
    width = 2 * inv_freq.shape[0]
    kept, turned = x[..., : x.shape[-1] - width], x[..., x.shape[-1] - width :].float()
    even, odd = turned[..., 0::2], turned[..., 1::2]
    rotated = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
    return torch.cat([kept, rotated.to(x.dtype)], dim=-1)


def apply_rope_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Vectors and heads, part and whole rotated, far positions, both directions, zero rows."""
    make = Maker(device, dtype, seed)
    shapes: tuple[tuple[tuple[int, ...], int], ...] = (((0, 32), 16), ((0, 2, 32), 16), ((7, 48), 16), ((5, 3, 64), 64))
    for shape, width in shapes:
        inv_freq = 10000.0 ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
        position = make.integers(0, 4096, shape[0], dtype=torch.int32)
        for inverse in (False, True):
            name = f"{'x'.join(map(str, shape))}, last {width}{', inverse' if inverse else ''}"
            yield OpCase(name, (make.normal(*shape), position, inv_freq), {"inverse": inverse})


SPECS = (OpSpec("apply_rope", "rope", apply_rope, apply_rope_cases, CLOSE),)
