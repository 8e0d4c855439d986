"""The indexer: scores of compressed entries, candidate blocks, and the choice of the best entries."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from deepinfer_core.interfaces.ops import OpCase, OpSpec, PagedView, RowFormat, Rows
from deepinfer_core.ops.cases import EXACT, MIXED, SUMS, Maker
from deepinfer_core.ops.formats import decode_rows
from deepinfer_core.ops.order import best_first
from deepinfer_core.ops.rows import entry_rows, visible_entries

NEGATIVE_INFINITY = float("-inf")


def index_scores(q: Tensor, weights: Tensor, keys: PagedView, rows: Rows, num_entries: int) -> Tensor:
    """q [T, H, d], weights [T, H] -> float32 [T, num_entries]: sum over heads of weight * relu(q . key).

    -inf where entry >= (position + 1) // ratio: the entry's group has not ended at the row.
    """
    entry = torch.arange(num_entries, device=q.device)
    visible = entry < visible_entries(rows, keys.ratio)[:, None]
    index = entry_rows(rows, keys, entry.expand(len(rows), num_entries), visible)
    key = decode_rows(keys.pool[index], keys.format, q.shape[-1])
    scores = torch.einsum("thd,tnd->thn", q.float(), key).relu()
    total = (scores * weights.float()[..., None]).sum(1)
    return torch.where(visible, total, NEGATIVE_INFINITY)


def select_blocks(scores: Tensor, visible: Tensor, block_size: int, top_blocks: int) -> Tensor:
    """scores [T, N], visible [T] -> bool [T, ceil(N / block_size)]: the blocks whose entries may be chosen.

    A block is worth its best entry; the block of the newest visible entry always comes first; ties go to the lower
    block; a block without a visible entry is never chosen.
    """
    rows, count = scores.shape
    blocks = -(-count // block_size)
    padded = pad(scores, (0, blocks * block_size - count), value=NEGATIVE_INFINITY)
    worth = torch.unflatten(padded, -1, (blocks, block_size)).amax(-1)
    newest = (visible.long() - 1).div(block_size, rounding_mode="floor")
    worth = torch.where(torch.arange(blocks, device=scores.device) == newest[:, None], float("inf"), worth)
    best, index = best_first(worth, top_blocks)
    chosen = torch.zeros(rows, blocks, dtype=torch.bool, device=scores.device)
    return chosen.scatter(-1, index, best > NEGATIVE_INFINITY)


def select_topk(scores: Tensor, top_k: int, blocks: Tensor | None = None, block_size: int = 1) -> Tensor:
    """scores [T, N] -> int32 [T, top_k]: the best entries by (score, lower entry), ascending, then -1.

    -inf is never chosen, nor is an entry outside the `blocks` [T, ceil(N / block_size)] that are given.
    """
    count = scores.shape[1]
    if blocks is not None:
        inside = blocks.repeat_interleave(block_size, dim=-1)[:, :count]
        scores = torch.where(inside, scores, NEGATIVE_INFINITY)
    best, index = best_first(scores, top_k)
    ascending = torch.where(best > NEGATIVE_INFINITY, index, count).sort(-1).values
    chosen = torch.where(ascending < count, ascending, -1).to(torch.int32)
    return pad(chosen, (0, top_k - chosen.shape[-1]), value=-1)


def index_scores_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Ratios 1 and 2, entries beyond every row's reach, padding rows, zero rows, no entries; unseen keys are NaN."""
    make = Maker(device, dtype, seed)
    for ratio, format in ((1, RowFormat.FP4_E8M0_32), (2, RowFormat.FP4_E8M0_32), (2, RowFormat.F32)):
        keys = make.paged(MIXED, format, 32, ratio, 8)
        for name, segments, entries in (("no rows", (), 16), ("rows", MIXED, 41 // ratio), ("no entries", MIXED, 0)):
            rows = make.rows(segments, padding=2 if segments else 0)
            q, weights = make.normal(len(rows), 3, 32), make.normal(len(rows), 3)
            yield OpCase(f"{format.value}, ratio {ratio}, {name}", (q, weights, keys, rows, entries))


def select_blocks_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Zero rows, a last short block, more blocks asked for than there are, ties, nothing visible."""
    make = Maker(device, dtype, seed)
    for rows, entries, size, top in ((0, 16, 4, 2), (6, 37, 4, 3), (6, 37, 8, 9), (3, 5, 8, 1)):
        scores, visible = _scores(make, rows, entries)
        yield OpCase(f"{rows}x{entries}, {top} of size {size}", (scores, visible, size, top))
    visible = torch.tensor([24, 9], device=device)
    ties = torch.where(torch.arange(24, device=device) < visible[:, None], 0.0, NEGATIVE_INFINITY)
    yield OpCase("ties", (ties, visible, 4, 3))


def select_topk_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Zero rows, fewer entries than asked for, ties, both zeros, candidate blocks with a short last one."""
    make = Maker(device, dtype, seed)
    for rows, entries, top in ((0, 16, 4), (6, 37, 8), (6, 5, 8), (2, 0, 3)):
        yield OpCase(f"{rows}x{entries}, best {top}", (_scores(make, rows, entries)[0], top))
    scores, visible = _scores(make, 6, 37)
    blocks = select_blocks(scores, visible, 4, 3)
    yield OpCase("candidate blocks", (scores, 8), {"blocks": blocks, "block_size": 4})
    zeros = torch.tensor([[-0.0, 0.0, -1.0, 0.0, -0.0, 0.0], [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]], device=device)
    yield OpCase("ties", (zeros, 4))


def _scores(make: Maker, rows: int, entries: int) -> tuple[Tensor, Tensor]:
    """Scores with many exact zeros, -inf from each row's number of visible entries on."""
    visible = make.integers(0, entries + 1, rows)
    scores = make.normal(rows, entries, dtype=torch.float32).relu()
    hidden = torch.arange(entries, device=make.device) >= visible[:, None]
    return scores.masked_fill(hidden, NEGATIVE_INFINITY), visible


SPECS = (
    OpSpec("index_scores", "index", index_scores, index_scores_cases, SUMS),
    OpSpec("select_blocks", "index", select_blocks, select_blocks_cases, EXACT),
    OpSpec("select_topk", "index", select_topk, select_topk_cases, EXACT),
)
