"""Builders of op inputs that the families' cases share: random tensors and weights, row metadata, poisoned pools.

A pool starts as 0xFF bytes, which every row format reads as NaN (or, where it has no NaN, as NaN scales), so that a
kernel which looks at a row it was not given shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import PagedView, RowFormat, Rows, Tolerance, Weight, WeightFormat, WindowView
from deepinfer_core.ops.formats import encode_rows

EXACT = {"float32": Tolerance(0.0, 0.0), "bfloat16": Tolerance(0.0, 0.0)}
CLOSE = {"float32": Tolerance(1e-5, 1e-5), "bfloat16": Tolerance(1e-2, 1e-2)}
SUMS = {"float32": Tolerance(1e-4, 1e-4), "bfloat16": Tolerance(3e-2, 3e-2)}  # dot products over hundreds of terms


@dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one request in a step: `count` of them from position `first`; windows stop at `floor`."""

    slot: int
    first: int
    count: int
    floor: int = 0


# Two prompts' chunks and two decode rows: a chunk longer than a ring, one that starts anew, a floor in the window.
MIXED = (Segment(2, 5, 23), Segment(0, 0, 3), Segment(3, 40, 1, floor=35), Segment(1, 17, 1))


class Maker:
    """Draws inputs on a device from one seed. Random numbers come from the CPU, so devices get equal ones."""

    def __init__(self, device: torch.device, dtype: torch.dtype, seed: int) -> None:
        self.device = device
        self.dtype = dtype
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> Tensor:
        """Normal numbers in the op's dtype, or the one given."""
        drawn = torch.randn(*shape, generator=self._generator) * scale
        return drawn.to(self.device, dtype or self.dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Integers in low .. high - 1."""
        return torch.randint(low, high, shape, generator=self._generator).to(self.device, dtype)

    def weight(self, format: WeightFormat, *shape: int) -> Weight:
        """A random weight [..., out, in] of about unit row norm."""
        out, inner = shape[-2], shape[-1]
        if format in (WeightFormat.F32, WeightFormat.BF16):
            dtype = torch.float32 if format is WeightFormat.F32 else torch.bfloat16
            return Weight(self.normal(*shape, scale=inner**-0.5, dtype=dtype), format)
        scale_rows = -(-out // 32) if format is WeightFormat.FP8 else out
        scale = self.integers(121, 125, *shape[:-2], scale_rows, -(-inner // 32), dtype=torch.uint8)
        if format is WeightFormat.FP8:
            return Weight(self.normal(*shape, dtype=torch.float32).to(torch.float8_e4m3fn), format, scale)
        return Weight(self.integers(0, 256, *shape[:-1], inner // 2, dtype=torch.uint8), format, scale)

    def rows(self, segments: Sequence[Segment], padding: int = 0) -> Rows:
        """Row metadata of segments in order, then `padding` rows with slot -1 and other fields that mean nothing."""
        columns: list[list[int]] = [[] for _ in range(6)]
        for segment in segments:
            first_row, last = len(columns[0]), segment.first + segment.count - 1
            for position in range(segment.first, last + 1):
                values = (segment.slot, position, segment.first, first_row, last, segment.floor)
                for column, value in zip(columns, values, strict=True):
                    column.append(value)
        for column, value in zip(columns, (-1, 7, 3, 1, 9, 0), strict=True):
            column.extend([value] * padding)
        return Rows(*(torch.tensor(column, dtype=torch.int32, device=self.device) for column in columns))

    def window(
        self, segments: Sequence[Segment], format: RowFormat, dim: int, window: int, ring_rows: int, slots: int = 5
    ) -> WindowView:
        """A pool of rings (the second of two layers) and scratch, in which only rows of a window hold numbers."""
        base, fresh_base = slots * ring_rows, 2 * slots * ring_rows
        total = sum(segment.count for segment in segments)
        pool = self._poisoned(fresh_base + total + 3, format, dim)
        past = [
            base + s.slot * ring_rows + position % ring_rows
            for s in segments
            for position in range(max(s.floor, s.first - window + 1, 0), s.first)
        ]
        filled = torch.tensor([*past, *range(fresh_base, fresh_base + total)], dtype=torch.int64, device=self.device)
        pool[filled] = encode_rows(self.normal(len(filled), dim, dtype=torch.float32), format)
        return WindowView(pool, format, base, fresh_base, ring_rows, window)

    def paged(
        self, segments: Sequence[Segment], format: RowFormat, dim: int, ratio: int, block_rows: int, slots: int = 5
    ) -> PagedView:
        """A pool in shuffled blocks, in which only entries of groups that some row has seen end hold numbers."""
        ends = {s.slot: (s.first + s.count) // ratio for s in segments}
        table_width = max([1, *(-(-end // block_rows) for end in ends.values())])
        blocks = torch.randperm(slots * table_width + 2, generator=self._generator)[: slots * table_width]
        table = blocks.to(self.device, torch.int32).view(slots, table_width)
        pool = self._poisoned((slots * table_width + 2) * block_rows, format, dim)
        for slot, end in ends.items():
            entry = torch.arange(end, device=self.device)
            index = table[slot, entry // block_rows].long() * block_rows + entry % block_rows
            pool[index] = encode_rows(self.normal(end, dim, dtype=torch.float32), format)
        return PagedView(pool, format, table, block_rows, ratio)

    def _poisoned(self, rows: int, format: RowFormat, dim: int) -> Tensor:
        return torch.full((rows, format.row_bytes(dim)), 0xFF, dtype=torch.uint8, device=self.device)
