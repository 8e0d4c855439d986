"""Larger inputs for a few ops: sizes at which tiles of rows and columns, decoded copies and threads come into play."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from deepinfer_conformance.inputs import Case
from deepinfer_conformance.laws.attention import Sizes, tell
from deepinfer_conformance.laws.moving import HOST
from deepinfer_core.interfaces.ops import RowFormat, WeightFormat
from deepinfer_core.ops.cases import MIXED, Maker, Segment
from deepinfer_core.ops.moe import moe_permute

ROWS = (3, 70)


def wide_cases(name: str, dtype: str, seed: int) -> Iterator[Case]:
    """Cases of the op; none where the catalogue's are enough."""
    makers = {
        "linear": _linear,
        "lm_head": _lm_head,
        "gated_mlp": _gated_mlp,
        "grouped_linear": _grouped_linear,
        "experts": _experts,
        "sparse_attention": _attention,
    }
    if name in makers:
        yield from makers[name](Maker(HOST, getattr(torch, dtype), seed))


def _linear(make: Maker) -> Iterator[Case]:
    for format in WeightFormat:
        weight = make.weight(format, 130, 160)
        for rows in ROWS:
            yield Case(
                f"{format.value}, {rows} rows", {"x": make.normal(rows, 160), "weight": weight, "quantise": True}
            )


def _lm_head(make: Maker) -> Iterator[Case]:
    for format in (WeightFormat.F32, WeightFormat.BF16):
        yield Case(f"{format.value}, wide", {"x": make.normal(37, 160), "weight": make.weight(format, 1003, 160)})


def _gated_mlp(make: Maker) -> Iterator[Case]:
    for format in WeightFormat:
        w1, w3, w2 = make.weight(format, 128, 160), make.weight(format, 128, 160), make.weight(format, 160, 128)
        given = {"x": make.normal(37, 160), "w1": w1, "w3": w3, "w2": w2, "limit": 10.0, "quantise": True}
        yield Case(f"{format.value}, wide", given)


def _grouped_linear(make: Maker) -> Iterator[Case]:
    for format in WeightFormat:
        weight = make.weight(format, 4 * 64, 96)
        yield Case(f"{format.value}, wide", {"x": make.normal(37, 4, 96), "weight": weight})


def _experts(make: Maker) -> Iterator[Case]:
    for format in WeightFormat:
        yield Case(f"{format.value}, wide", experts_arguments(make, format, rows=45, count=6, top_k=2))


def experts_arguments(make: Maker, format: WeightFormat, rows: int, count: int, top_k: int) -> dict[str, Any]:
    """Arguments of `experts`, each row with `top_k` different ones of `count` experts."""
    chosen = torch.stack([(make.integers(0, count, rows) + j) % count for j in range(top_k)], dim=1).to(torch.int32)
    order, offsets = moe_permute(chosen, count)
    return {
        "x": make.normal(rows, 96),
        "order": order,
        "offsets": offsets,
        "weights": make.normal(rows, top_k, dtype=torch.float32).abs(),
        "w1": make.weight(format, count, 64, 96),
        "w3": make.weight(format, count, 64, 96),
        "w2": make.weight(format, count, 96, 64),
        "limit": 10.0,
        "quantise": True,
    }


def _attention(make: Maker) -> Iterator[Case]:
    for segments, sizes in ((MIXED, Sizes()), ((Segment(1, 300, 3), Segment(0, 0, 150)), Sizes(128, 140, 32))):
        story = tell(segments, (RowFormat.F32, RowFormat.F32), 1, 0, sizes)
        count = len(story.rows)
        drawn = make.integers(0, 60, count, 8, dtype=torch.int32)
        ended = torch.tensor([story.ended(row) if story.rows.slot[row] >= 0 else 0 for row in range(count)])
        given = {
            "q": make.normal(count, 4, 64),
            "rows": story.rows,
            "window": story.window,
            "entries": story.entries,
            "selected": torch.where(drawn < ended[:, None], drawn, -1),
            "sink": make.normal(4, dtype=torch.float32),
            "scale": 0.125,
        }
        yield Case(f"windows of {sizes.window}, {count} rows", given)
