"""Fences: inputs of an op in the middle of larger buffers, to see what is written where nothing may be.

What lies around an input reads as NaN, or as -1, so that reading there shows in the result.
"""

from __future__ import annotations

import torch
from torch import Tensor

GUARD = 512  # bytes on either side
_CANARY = 0xFF


class Fence:
    """The fenced tensors of one call."""

    def __init__(self) -> None:
        self._fenced: list[tuple[Tensor, Tensor, Tensor]] = []  # buffer, its bytes before the call, the part handed out

    def around(self, x: Tensor) -> Tensor:
        """A copy of `x` with guards on either side."""
        size = x.numel() * x.element_size()
        buffer = torch.full((size + 2 * GUARD,), _CANARY, dtype=torch.uint8, device=x.device)
        inner = buffer[GUARD : GUARD + size].view(x.dtype).view(x.shape)
        inner.copy_(x)
        self._fenced.append((buffer, buffer.clone(), inner))
        return inner

    def breaches(self, written: list[Tensor]) -> list[str]:
        """One sentence for each tensor whose guards changed, or whose own numbers did and it is not in `written`."""
        faults = []
        for buffer, before, inner in self._fenced:
            changed = (buffer != before).nonzero().flatten().cpu()
            if any(inner is one for one in written):
                end = buffer.numel() - GUARD
                changed = changed[(changed < GUARD) | (changed >= end)]
            if len(changed):
                what = f"the {str(inner.dtype).removeprefix('torch.')} {list(inner.shape)} input"
                faults.append(f"{what} was written to, from byte {int(changed[0]) - GUARD} on ({len(changed)} bytes)")
        return faults
