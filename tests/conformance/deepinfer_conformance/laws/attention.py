"""Attention in float64, a row at a time, over keys that are known by request and position; and pools filled with them.

The dense side never sees a pool: where a key lies is what is on trial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepinfer_conformance.laws.moving import HOST
from deepinfer_core.interfaces.ops import PagedView, RowFormat, Rows, WindowView
from deepinfer_core.ops.cases import Maker, Segment
from deepinfer_core.ops.formats import decode_rows, encode_rows

POISON = 0xFF  # every row format reads such bytes as NaN
NONE = -1  # an entry that is not there


@dataclass(frozen=True, slots=True)
class Sizes:
    """A sliding window, the ring that keeps it, and the entries of a block."""

    window: int = 9
    ring_rows: int = 11
    block_rows: int = 8


@dataclass(frozen=True, slots=True)
class Story:
    """A step's requests, everything that they have stored, and the pools that hold it. All on the host.

    `keys[slot]` float64 [positions, d] are the window keys as reading them back gives them, `compressed[slot]` [n, d]
    likewise. `ratio` 0: there are no compressed entries.
    """

    segments: tuple[Segment, ...]
    rows: Rows
    keys: dict[int, Tensor]
    compressed: dict[int, Tensor]
    window: WindowView
    entries: PagedView | None
    ratio: int

    def seen(self, row: int) -> range:
        """The positions in a row's window."""
        t, floor = int(self.rows.position[row]), int(self.rows.floor[row])
        return range(max(floor, t - self.window.window + 1, 0), t + 1)

    def ended(self, row: int) -> int:
        """How many compressed entries a row may look at."""
        return (int(self.rows.position[row]) + 1) // self.ratio if self.ratio else 0


def tell(
    segments: Sequence[Segment],
    formats: tuple[RowFormat, RowFormat],
    ratio: int,
    seed: int,
    sizes: Sizes = Sizes(),
    dim: int = 64,
    one_hot: bool = False,
) -> Story:
    """A story with random keys, or with keys that say their position: the unit vector number `position % dim`.

    Pools are NaN wherever the contract does not say that a key lies.
    """
    make = Maker(HOST, torch.float32, seed)

    def stored(count: int, format: RowFormat) -> Tensor:
        plain = torch.eye(dim)[torch.arange(count) % dim] if one_hot else make.normal(count, dim)
        return encode_rows(plain, format)

    def read(of: dict[int, Tensor], format: RowFormat) -> dict[int, Tensor]:
        return {slot: decode_rows(one, format, dim).double() for slot, one in of.items()}

    rows = make.rows(segments, padding=2 if segments else 0)
    ends = {one.slot: one.first + one.count for one in segments}
    keys = {slot: stored(end, formats[0]) for slot, end in ends.items()}
    window = _window(segments, keys, formats[0], sizes)
    if not ratio:
        return Story(tuple(segments), rows, read(keys, formats[0]), {}, window, None, 0)
    compressed = {slot: stored(end // ratio, formats[1]) for slot, end in ends.items()}
    entries = _paged(compressed, formats[1], ratio, sizes, dim, seed)
    return Story(tuple(segments), rows, read(keys, formats[0]), read(compressed, formats[1]), window, entries, ratio)


def attend(story: Story, q: Tensor, selected: Tensor | None, sink: Tensor, scale: float) -> Tensor:
    """float64 [T, H, d]: what `sparse_attention` must give; q [T, H, d], selected [T, k], sink [H]."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    for row in range(len(story.rows)):
        slot = int(story.rows.slot[row])
        if slot < 0:
            continue
        keys = story.keys[slot][list(story.seen(row))]
        if selected is not None:
            chosen = [entry for entry in selected[row].tolist() if entry != NONE]
            keys = torch.cat([keys, story.compressed[slot][chosen]])
        logits = q[row].double() @ keys.T * scale
        weights = torch.softmax(torch.cat([logits, sink.double()[:, None]], dim=1), dim=1)[:, :-1]
        out[row] = weights @ keys
    return out


def scores(story: Story, q: Tensor, weights: Tensor, count: int) -> Tensor:
    """float64 [T, count]: what `index_scores` must give over the story's entries."""
    out = torch.full((len(story.rows), count), -math.inf, dtype=torch.float64)
    for row in range(len(story.rows)):
        slot, ended = int(story.rows.slot[row]), min(story.ended(row), count)
        if slot >= 0 and ended:
            products = (q[row].double() @ story.compressed[slot][:ended].T).relu()
            out[row, :ended] = weights[row].double() @ products
    return out


def best_entries(scores: Sequence[float], top_k: int) -> list[int]:
    """What `select_topk` must choose for one row, by sorting: the higher score first, then the lower entry."""
    order = sorted(range(len(scores)), key=lambda entry: (-scores[entry], entry))
    chosen = sorted(entry for entry in order[:top_k] if scores[entry] > -math.inf)
    return chosen + [NONE] * (top_k - len(chosen))


def best_blocks(scores: Sequence[float], visible: int, size: int, top: int) -> list[bool]:
    """The blocks that `select_blocks` must choose for one row: the newest, then by their best entry, then the lower."""
    count = -(-len(scores) // size)
    worth = [max(scores[at * size : (at + 1) * size]) for at in range(count)]
    if visible > 0:
        worth[(visible - 1) // size] = math.inf
    order = sorted(range(count), key=lambda block: (-worth[block], block))[:top]
    return [block in order and worth[block] > -math.inf for block in range(count)]


def _window(segments: Sequence[Segment], stored: dict[int, Tensor], format: RowFormat, sizes: Sizes) -> WindowView:
    """Rings of two layers, of which the second is the view's, then a few rows of another pool user, then scratch."""
    slots = 1 + max((one.slot for one in segments), default=0)
    base, fresh_base = slots * sizes.ring_rows, 2 * slots * sizes.ring_rows + 2
    width = next(iter(stored.values())).shape[1] if stored else format.row_bytes(64)
    total = sum(one.count for one in segments)
    pool = torch.full((fresh_base + total + 3, width), POISON, dtype=torch.uint8)
    row = fresh_base
    for one in segments:
        lowest = max(one.floor, one.first - sizes.window + 1, 0)
        for position in range(lowest, one.first):
            pool[base + one.slot * sizes.ring_rows + position % sizes.ring_rows] = stored[one.slot][position]
        pool[row : row + one.count] = stored[one.slot][one.first : one.first + one.count]
        row += one.count
    return WindowView(pool, format, base, fresh_base, sizes.ring_rows, sizes.window)


def _paged(stored: dict[int, Tensor], format: RowFormat, ratio: int, sizes: Sizes, dim: int, seed: int) -> PagedView:
    """Entries in blocks whose ids are in no order, one spare block between any two requests'."""
    size = sizes.block_rows
    width = max([1, *(-(-len(one) // size) for one in stored.values())])
    slots = 1 + max(stored, default=0)
    ids = torch.randperm(slots * width + 2, generator=torch.Generator().manual_seed(seed))[: slots * width]
    table = ids.to(torch.int32).view(slots, width)
    pool = torch.full(((slots * width + 2) * size, format.row_bytes(dim)), POISON, dtype=torch.uint8)
    for slot, one in stored.items():
        for entry in range(len(one)):
            pool[int(table[slot, entry // size]) * size + entry % size] = one[entry]
    return PagedView(pool, format, table, size, ratio)
