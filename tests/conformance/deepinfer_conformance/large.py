"""One case an op at the sizes of a large model, which the catalogue's own cases are too small for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from deepinfer_conformance.inputs import CPU, Arguments
from deepinfer_core.interfaces.backend import Capabilities
from deepinfer_core.interfaces.ops import RowFormat, Weight, WeightFormat
from deepinfer_core.ops.cases import Maker, Segment
from deepinfer_core.ops.moe import moe_permute
from deepinfer_core.ops.rows import visible_entries

DIM, ROWS = 2048, 67
STEP = (Segment(2, 700, 40), Segment(0, 0, 24), Segment(3, 2999, 1), Segment(1, 130, 1))


class _Large:
    """Draws inputs in the formats that a backend claims: the last of the catalogue's order, which is the smallest."""

    def __init__(self, dtype: torch.dtype, seed: int, capabilities: Capabilities) -> None:
        self.make = Maker(CPU, dtype, seed)
        self._weights = [one for one in WeightFormat if one in capabilities.weight_formats]
        self._rows = [one for one in RowFormat if one in capabilities.kv_formats]

    def x(self, *shape: int) -> Tensor:
        return self.make.normal(*shape)

    def weight(self, *shape: int) -> Weight:
        return self.make.weight(self._weights[-1], *shape)

    def first(self, *wanted: RowFormat) -> RowFormat:
        """The first of the formats that is claimed, or whichever is."""
        return next((one for one in wanted if one in self._rows), self._rows[-1])


def _attention(large: _Large) -> Arguments:
    rows = large.make.rows(STEP)
    window = large.make.window(STEP, large.first(RowFormat.FP8_E8M0_32), 512, window=128, ring_rows=130)
    entries = large.make.paged(STEP, large.first(RowFormat.FP4_E4M3_16), 512, 2, 32)
    drawn = torch.stack([torch.randperm(1500)[:512] for _ in range(len(rows))]).to(torch.int32)
    selected = torch.where(drawn < visible_entries(rows, 2)[:, None], drawn, -1).to(torch.int32)
    q, sink = large.x(len(rows), 8, 512), large.make.normal(8, dtype=torch.float32)
    return {
        "q": q,
        "rows": rows,
        "window": window,
        "entries": entries,
        "selected": selected,
        "sink": sink,
        "scale": 512**-0.5,
    }


def _scores(large: _Large) -> Arguments:
    rows = large.make.rows(STEP)
    keys = large.make.paged(STEP, large.first(RowFormat.FP4_E8M0_32), 128, 2, 32)
    q, weights = large.x(len(rows), 8, 128), large.x(len(rows), 8)
    return {"q": q, "weights": weights, "keys": keys, "rows": rows, "num_entries": 1500}


def _experts(large: _Large) -> Arguments:
    top_k, count, width = 6, 24, 256
    order, offsets = moe_permute(large.make.integers(0, count, ROWS, top_k, dtype=torch.int32), count)
    weights = large.make.normal(ROWS, top_k, dtype=torch.float32).abs()
    w1, w3 = large.weight(count, width, 512), large.weight(count, width, 512)
    stacks = {"w1": w1, "w3": w3, "w2": large.weight(count, 512, width)}
    rest = {"order": order, "offsets": offsets, "weights": weights, "limit": 10.0, "quantise": False}
    return {"x": large.x(ROWS, 512), **stacks, **rest}


def _mixes(large: _Large) -> Arguments:
    fn = large.make.normal(24, 4 * DIM, scale=0.01, dtype=torch.float32)
    base, scale = large.make.normal(24, dtype=torch.float32), torch.ones(3)
    rounds: dict[str, Any] = {"norm_eps": 1e-20, "hc_eps": 1e-6, "iterations": 20}
    return {"streams": large.x(ROWS, 4, DIM), "fn": fn, "base": base, "scale": scale, **rounds}


def _logits(large: _Large) -> Tensor:
    return large.make.normal(4, 129_280, scale=4.0, dtype=torch.float32)


_MAKERS: Mapping[str, Callable[[_Large], Arguments]] = {
    "rms_norm": lambda large: {"x": large.x(1025, 4096), "weight": large.x(4096), "eps": 1e-6},
    "hc_mixes": _mixes,
    "linear": lambda large: {"x": large.x(ROWS, DIM), "weight": large.weight(3 * DIM, DIM), "quantise": False},
    "lm_head": lambda large: {
        "x": large.x(3, DIM),
        "weight": large.make.weight(WeightFormat.BF16, 32_000, DIM),
    },
    "experts": _experts,
    "index_scores": _scores,
    "select_topk": lambda large: {"scores": large.make.normal(ROWS, 20_000, dtype=torch.float32), "top_k": 512},
    "sparse_attention": _attention,
    "top_logprobs": lambda large: {"logits": _logits(large), "tokens": torch.tensor([0, 5, 129_279, 77]), "k": 20},
    "sample_tokens": lambda large: {
        "logits": _logits(large),
        "temperature": torch.tensor([0.6, 1.0, 1.3, 0.0]),
        "top_k": torch.tensor([50, 0, 1, 9], dtype=torch.int32),
        "top_p": torch.tensor([0.95, 0.9, 1.0, 0.5], dtype=torch.float64),
        "min_p": torch.tensor([0.0, 0.01, 0.0, 0.0]),
        "seed": torch.tensor([1, -2, 3, 4]),
        "sample": torch.tensor([0, 1, 2, 3]),
        "position": torch.tensor([0, 9, 1 << 20, 4]),
    },
}
LARGE = tuple(_MAKERS)


def large_case(name: str, dtype: torch.dtype, seed: int, capabilities: Capabilities) -> Arguments:
    """The large inputs of an op of LARGE."""
    return _MAKERS[name](_Large(dtype, seed, capabilities))
