"""Activation quantisation: the meaning of fake_quant and its cases. The formats themselves are in formats.py."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from deepinfer_core.interfaces.ops import OpCase, OpSpec, RowFormat
from deepinfer_core.ops.cases import EXACT, Maker
from deepinfer_core.ops.formats import decode_rows, encode_rows, row_block


def fake_quant(x: Tensor, format: RowFormat) -> Tensor:
    """What storing x [..., d] in `format` and reading it back gives, in x's dtype. A last short block is allowed."""
    width = x.shape[-1]
    padded = pad(x, (0, -width % row_block(format)))
    stored = decode_rows(encode_rows(padded, format), format, padded.shape[-1])
    return stored[..., :width].to(x.dtype)


def fake_quant_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Each format: zero rows, blocks of zeros, magnitudes from 1e-6 to 1e6, a short last block, infinities."""
    make = Maker(device, dtype, seed)
    magnitudes = 10.0 ** torch.arange(-6, 7, device=device, dtype=torch.float32)[:, None]
    for format in RowFormat:
        yield OpCase(f"{format.value}, no rows", (make.normal(0, 64), format))
        x = make.normal(13, 96) * magnitudes.to(dtype)
        x[:, 32:64] = 0
        yield OpCase(f"{format.value}, magnitudes", (x, format))
        yield OpCase(f"{format.value}, heads and a short block", (make.normal(3, 2, 40), format))
        infinite = make.normal(2, 32)
        infinite[0, 3], infinite[1, 5] = float("inf"), float("-inf")
        yield OpCase(f"{format.value}, infinities", (infinite, format))


SPECS = (OpSpec("fake_quant", "quant", fake_quant, fake_quant_cases, EXACT),)
