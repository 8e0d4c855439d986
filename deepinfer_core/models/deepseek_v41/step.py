"""What all layers of one step share: which rows are run and where their cache rows lie; and what flows through them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deepinfer_core.interfaces.model import CachePools, StepInput
from deepinfer_core.interfaces.ops import PagedView, Rows, WindowView


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows whose window keys are written together, and where: -1 where a row is not to be written."""

    rows: Rows
    fresh: Tensor  # int64 [T] row of the window pool, in its scratch
    ring: Tensor  # int64 [T] row within one layer's rings: only the last of each request, as many as its ring has


@dataclass(frozen=True, slots=True)
class StepContext:
    """One step's inputs, and what was derived from them before the first layer."""

    step: StepInput
    pools: CachePools
    all: RowSet  # the encoder half and the boundary layer's caches
    kept: RowSet  # the decoder half
    boundary: Rows  # kept rows as the boundary layer's query side sees them: among keys of all rows


@dataclass(slots=True)
class State:
    """What each layer hands to the next, one row a token. A layer replaces the fields that it changes."""

    streams: Tensor  # [T, n, D]
    pre: Tensor  # float32 [T, n]: how the next sublayer's input is mixed from the streams
    classes: Tensor | None  # int64 [T, n-gram size]: classes of the token and those before it
    selected: Tensor | None = None  # int32 [T, k]: entries that the latest index source chose, -1 for none
    blocks: Tensor | None = None  # bool [T, blocks]: candidate blocks, once they were chosen

    def keep(self, index: Tensor) -> None:
        """Go on with these rows alone."""
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(self, name, None if value is None else keep_rows(value, index))


def keep_rows(x: Tensor, index: Tensor) -> Tensor:
    """x[index] for ascending row numbers, none twice; x itself when they are all of its rows."""
    return x if index.shape[0] == x.shape[0] else x[index]


def make_context(step: StepInput, pools: CachePools, window: WindowView) -> StepContext:
    """Derive a step's destinations. `window` is any layer's view of the window pool."""
    return StepContext(
        step=step,
        pools=pools,
        all=_row_set(step.rows, window),
        kept=_row_set(step.kept_rows, window),
        boundary=step.rows.take(step.kept),
    )


def _row_set(rows: Rows, window: WindowView) -> RowSet:
    index = window.fresh_base + torch.arange(len(rows), device=rows.slot.device)
    return RowSet(rows, torch.where(rows.slot >= 0, index, -1), ring_destination(rows, window.ring_rows))


def ring_destination(rows: Rows, ring_rows: int) -> Tensor:
    """int64 [T]: row within per-slot rings of the request's last `ring_rows` rows in this step; -1 for the others."""
    position = rows.position.long()
    lasting = (rows.slot >= 0) & (position > rows.last_position.long() - ring_rows)
    return torch.where(lasting, rows.slot.long() * ring_rows + position % ring_rows, -1)


def entry_destination(rows: Rows, write_start: Tensor, entries: PagedView) -> Tensor:
    """int64 [T]: pool row of the compressed entry that ends at each row; -1 where none does or others wrote it."""
    position = rows.position.long()
    ends = (rows.slot >= 0) & ((position + 1) % entries.ratio == 0) & (position >= write_start)
    index = torch.where(ends, position // entries.ratio, 0)
    block = entries.block_table[rows.slot.long().clamp(min=0), index // entries.block_rows].long()
    return torch.where(ends, block * entries.block_rows + index % entries.block_rows, -1)
