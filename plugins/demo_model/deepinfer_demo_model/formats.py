"""Encoding float matrices into the checkpoint's stored formats: the data and its power-of-two scales.

An E8M0 scale is a bare exponent. Rounding is to nearest, ties to even; scales are the least that avoid saturation.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from deepinfer_demo_model.spec import TILE

E4M3_MAX, E2M1_MAX = 448.0, 6.0
E4M3_FLOOR, E2M1_FLOOR = 1e-4, 6 * 2.0**-126  # least block maximum, so that a block of zeros has a scale
E2M1_MIDPOINTS = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
E2M1_TIES_UP = torch.tensor([False, True, False, True, False, True, False])  # to the even code


def _scale(amax: Tensor, largest: float, floor: float) -> Tensor:
    mantissa, exponent = torch.frexp(amax.clamp_min(floor) / largest)
    return torch.ldexp(torch.ones_like(mantissa), torch.where(mantissa == 0.5, exponent - 1, exponent))


def encode_fp8_tiles(weight: Tensor) -> tuple[Tensor, Tensor]:
    """[N, K] -> (F8_E4M3 [N, K], F8_E8M0 [ceil(N/32), ceil(K/32)]): one scale for each 32x32 tile."""
    rows, columns = weight.shape
    padded = F.pad(weight.float(), (0, -columns % TILE, 0, -rows % TILE))
    tiles = torch.unflatten(torch.unflatten(padded, 1, (-1, TILE)), 0, (-1, TILE))
    scale = _scale(tiles.abs().amax((1, 3)), E4M3_MAX, E4M3_FLOOR)
    spread = scale.repeat_interleave(TILE, 0).repeat_interleave(TILE, 1)[:rows, :columns]
    return (weight.float() / spread).to(torch.float8_e4m3fn), scale.to(torch.float8_e8m0fnu)


def encode_fp8_rows(table: Tensor) -> tuple[Tensor, Tensor]:
    """[N, K] -> (F8_E4M3 [N, K], F8_E8M0 [N, K/32]): one scale for each 32 numbers of a row."""
    blocks = torch.unflatten(table.float(), -1, (-1, TILE))
    scale = _scale(blocks.abs().amax(-1), E4M3_MAX, E4M3_FLOOR)
    return (blocks / scale.unsqueeze(-1)).flatten(-2).to(torch.float8_e4m3fn), scale.to(torch.float8_e8m0fnu)


def encode_fp4(weight: Tensor) -> tuple[Tensor, Tensor]:
    """[N, K] -> (I8 [N, K/2], F8_E8M0 [N, K/32]): two E2M1 codes a byte, the even column in the low half."""
    blocks = torch.unflatten(weight.float(), -1, (-1, TILE))
    scale = _scale(blocks.abs().amax(-1), E2M1_MAX, E2M1_FLOOR)
    scaled = (blocks / scale.unsqueeze(-1)).flatten(-2)
    size = scaled.abs().unsqueeze(-1)
    beyond = torch.where(E2M1_TIES_UP, size >= E2M1_MIDPOINTS, size > E2M1_MIDPOINTS)
    codes = beyond.sum(-1).to(torch.uint8) | (scaled.signbit().to(torch.uint8) << 3)
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).view(torch.int8), scale.to(torch.float8_e8m0fnu)
