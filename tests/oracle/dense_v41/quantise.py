"""The checkpoint's number formats as differentiable rounding: forward rounds, backward passes through."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

FP8_MAX = 448.0
FP4_MAX = 6.0
FP8_AMAX_FLOOR = 1e-4
FP4_AMAX_FLOOR = FP4_MAX * 2.0**-126
FP4_SMALLEST_E4M3_SCALE = 2.0**-9


@dataclass(frozen=True, slots=True)
class Quantisation:
    """What a forward rounds. Weights that came from a checkpoint are on the grid already and need no rounding."""

    weights: bool = False
    activations: bool = False  # inputs of fp8/fp4 matrices
    caches: bool | None = None  # window keys, latents, index queries and keys; None: as the activations

    @property
    def stored(self) -> bool:
        """Whether what a cache holds is rounded."""
        return self.activations if self.caches is None else self.caches


def wide(x: Tensor) -> Tensor:
    """At least float32; float64 stays, so that derivatives can be checked."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor, rounded: Tensor) -> Tensor:
        return rounded.to(x.dtype)

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


def straight_through(x: Tensor, rounded: Tensor) -> Tensor:
    """The value of `rounded` with the gradient of `x`."""
    return _StraightThrough.apply(x, rounded)  # type: ignore[no-untyped-call,no-any-return]


def power_of_two_above(x: Tensor) -> Tensor:
    """2 ** ceil(log2 x), exactly, for x > 0."""
    mantissa, exponent = torch.frexp(x)  # x = mantissa * 2**exponent, mantissa in [0.5, 1)
    return torch.ldexp(torch.ones_like(x), exponent - (mantissa == 0.5).to(exponent.dtype))


def round_e4m3(x: Tensor) -> Tensor:
    """To the nearest E4M3 value, saturating at 448; ties to even."""
    return x.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).to(x.dtype)


def round_e2m1(x: Tensor) -> Tensor:
    """To the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 with sign, saturating; ties to the even code."""
    size = x.abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0)).to(x.dtype)
    return ((x / step).round() * step).clamp(-FP4_MAX, FP4_MAX)


@torch.no_grad()
def _blocks(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    blocks = wide(x).unflatten(-1, (-1, size))
    return blocks, blocks.abs().amax(-1, keepdim=True)


def fp8(x: Tensor, block: int = 32) -> Tensor:
    """E4M3 with a power-of-two scale for each `block` of the last dimension: activations, window keys, Engram rows."""
    with torch.no_grad():
        blocks, amax = _blocks(x, block)
        scale = power_of_two_above(amax.clamp_min(FP8_AMAX_FLOOR) / FP8_MAX)
        rounded = (round_e4m3(blocks / scale) * scale).flatten(-2)
    return straight_through(x, rounded)


def fp4(x: Tensor, block: int = 32) -> Tensor:
    """E2M1 with a power-of-two scale for each `block`: expert weights, index queries and keys."""
    with torch.no_grad():
        blocks, amax = _blocks(x, block)
        scale = power_of_two_above(amax.clamp_min(FP4_AMAX_FLOOR) / FP4_MAX)
        rounded = (round_e2m1(blocks / scale) * scale).flatten(-2)
    return straight_through(x, rounded)


def fp4_fine(x: Tensor, block: int = 16) -> Tensor:
    """E2M1 with an E4M3 scale for each `block`: compressed latents."""
    with torch.no_grad():
        blocks, amax = _blocks(x, block)
        scale = round_e4m3(amax.clamp_min(FP4_MAX * FP4_SMALLEST_E4M3_SCALE) / FP4_MAX)
        rounded = (round_e2m1(blocks / scale) * scale).flatten(-2)
    return straight_through(x, rounded)


def fp8_matrix(weight: Tensor) -> Tensor:
    """E4M3 with a power-of-two scale for each 32x32 tile; the last tile of a row or column may be smaller."""
    with torch.no_grad():
        rows, columns = weight.shape
        padded = F.pad(wide(weight), (0, -columns % 32, 0, -rows % 32))
        tiles = padded.unflatten(1, (-1, 32)).unflatten(0, (-1, 32))  # [tile row, 32, tile column, 32]
        amax = tiles.abs().amax((1, 3), keepdim=True).clamp_min(FP8_AMAX_FLOOR)
        scale = power_of_two_above(amax / FP8_MAX)
        rounded = (round_e4m3(tiles / scale) * scale).flatten(2, 3).flatten(0, 1)[:rows, :columns]
    return straight_through(weight, rounded)
