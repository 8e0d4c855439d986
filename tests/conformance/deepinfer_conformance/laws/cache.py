"""Pools for the cache tests: with rows around them that nobody may touch, and a ring as an engine keeps one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import RowFormat

GUARD = 8  # rows before and after a pool that belong to somebody else

# What storing may change a number by: a share of the number itself, and a share of the largest magnitude in its block.
# E4M3 has 3 bits of mantissa and its scale is at most twice what is needed; E2M1 steps are 2 of 6 at the top.
LOSS: Mapping[RowFormat, tuple[float, float]] = {
    RowFormat.F32: (0.0, 0.0),
    RowFormat.BF16: (2.0**-8, 0.0),
    RowFormat.FP8_E8M0_32: (2.0**-4, 2.0**-16),
    RowFormat.FP4_E4M3_16: (0.0, 1 / 5),
    RowFormat.FP4_E8M0_32: (0.0, 1 / 3),
}


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool uint8 [rows, width] on a device within a larger allocation of random bytes, and what it held at first."""

    around: Tensor  # on the device: guard rows, the pool, guard rows
    before: Tensor  # on the host: a copy of all that

    @property
    def rows(self) -> Tensor:
        """The pool itself."""
        return self.around[GUARD:-GUARD]

    def expected(self, written: Mapping[int, Tensor]) -> Tensor:
        """What the allocation must hold when exactly these pool rows were written."""
        after = self.before.clone()
        for row, stored in written.items():
            after[GUARD + row] = stored
        return after

    def changed(self, written: Mapping[int, Tensor]) -> list[int]:
        """The rows that do not hold what `expected` says. Negative ones lie before the pool."""
        differs = (self.around.cpu() != self.expected(written)).any(dim=1)
        return [row - GUARD for row in differs.nonzero().flatten().tolist()]


def make_pool(device: torch.device, rows: int, width: int, seed: int) -> Pool:
    """A pool of random bytes."""
    generator = torch.Generator().manual_seed(seed)
    before = torch.randint(0, 256, (rows + 2 * GUARD, width), dtype=torch.uint8, generator=generator)
    return Pool(before.to(device, copy=True), before)


def block_maxima(x: Tensor, block: int) -> Tensor:
    """float64, x's shape [..., d]: the largest magnitude in each number's block of `block` neighbours."""
    blocks = torch.unflatten(x.double().abs(), -1, (x.shape[-1] // block, block))
    return blocks.amax(-1, keepdim=True).expand_as(blocks).flatten(-2)
