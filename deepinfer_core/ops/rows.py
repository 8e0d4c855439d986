"""Where the things that a row looks at lie: rows of the step itself, ring rows, rows of paged pools.

Indices are int64 and safe to gather with; what they give must be masked with the mask returned beside them, because a
place that a row may not look at can hold anything, NaN included.
"""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import PagedView, Rows, WindowView


def step_rows(rows: Rows, position: Tensor) -> tuple[Tensor, Tensor]:
    """position [T, m] -> (row of the step that holds it [T, m], whether one does [T, m])."""
    offset = position - rows.first_position.long()[:, None]
    inside = (offset >= 0) & (rows.slot >= 0)[:, None]
    return torch.where(inside, rows.first_row.long()[:, None] + offset, 0), inside


def ring_index(rows: Rows, position: Tensor, ring_rows: int) -> Tensor:
    """position [T, m] -> index [T, m] into a [slots * ring_rows] ring; 0 before the start and for padding rows."""
    index = rows.slot.long()[:, None] * ring_rows + position % ring_rows
    return torch.where((position >= 0) & (rows.slot >= 0)[:, None], index, 0)


def window_rows(rows: Rows, window: WindowView) -> tuple[Tensor, Tensor]:
    """(pool row [T, window], visible [T, window]) of each row's sliding window, in order of position."""
    steps = torch.arange(1 - window.window, 1, device=rows.position.device)
    position = rows.position.long()[:, None] + steps
    visible = (position >= rows.floor.long().clamp(min=0)[:, None]) & (rows.slot >= 0)[:, None]
    fresh, inside = step_rows(rows, position)
    ring = ring_index(rows, position, window.ring_rows)
    return torch.where(inside, window.fresh_base + fresh, window.base + ring), visible


def entry_rows(rows: Rows, entries: PagedView, index: Tensor, visible: Tensor) -> Tensor:
    """Pool row [T, m] of each row's entries `index` [T, m]; 0 where not `visible`."""
    safe = torch.where(visible, index.long(), 0)
    slot = rows.slot.long().clamp(min=0)[:, None]
    block = entries.block_table[slot, safe // entries.block_rows].long()
    return torch.where(visible, block * entries.block_rows + safe % entries.block_rows, 0)


def visible_entries(rows: Rows, ratio: int) -> Tensor:
    """int64 [T]: how many entries of a source of this ratio a row may look at; 0 for padding rows."""
    return torch.where(rows.slot >= 0, (rows.position.long() + 1) // ratio, 0)
