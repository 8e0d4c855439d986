"""Stored dtypes as torch sees them, and the search for stored values that are not numbers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

CHUNK = 1 << 22  # elements looked at together, so that a check needs little memory

# Scales and packed pairs are bytes: a numeric cast of them would change what they mean.
TORCH_DTYPES: Mapping[str, torch.dtype] = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.uint8,
    "U8": torch.uint8,
    "I8": torch.uint8,
}


def has_nan(stored: Tensor, dtype: str) -> bool:
    """Whether a contiguous tensor, stored as `dtype` and held as TORCH_DTYPES says, has a value that is no number."""
    if dtype in ("U8", "I8"):
        return False
    flat = stored.view(-1)
    return any(_chunk_has_nan(flat[start : start + CHUNK], dtype) for start in range(0, flat.shape[0], CHUNK))


def _chunk_has_nan(chunk: Tensor, dtype: str) -> bool:
    if dtype == "F8_E8M0":
        return bool((chunk == 0xFF).any())
    if dtype == "F8_E4M3":
        return bool((chunk.view(torch.uint8) & 0x7F == 0x7F).any())
    return bool(chunk.isnan().any())
