"""Which parameters of each op have one entry a row: what it takes to give an op fewer rows, more rows or other rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from deepinfer_conformance.inputs import Arguments
from deepinfer_core.interfaces.ops import Rows

# The parameters that have one entry a row, by op. The other parameters are shared by all rows.
ROW_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "rms_norm": ("x",),
    "apply_rope": ("x", "position"),
    "hc_mixes": ("streams",),
    "hc_collapse": ("streams", "pre"),
    "hc_expand": ("y", "streams", "post", "comb"),
    "linear": ("x",),
    "grouped_linear": ("x",),
    "embedding": ("tokens",),
    "lm_head": ("x",),
    "fake_quant": ("x",),
    "route": ("x",),
    "gated_mlp": ("x",),
    "index_scores": ("q", "weights", "rows"),
    "select_blocks": ("scores", "visible"),
    "select_topk": ("scores", "blocks"),
    "sparse_attention": ("q", "rows", "selected"),
    "hash_ngrams": ("classes",),
    "engram_lookup": ("index",),
    "engram_gate": ("streams", "key", "value"),
    "read_rows": ("index",),
    "apply_token_mask": ("logits", "mask"),
    "apply_penalties": ("logits", "prompt_seen", "counts", "repetition", "presence", "frequency"),
    "sample_tokens": ("logits", "temperature", "top_k", "top_p", "min_p", "seed", "sample", "position"),
    "top_logprobs": ("logits", "tokens"),
    "verify_drafts": ("target", "drafts", "num_drafts"),
}
REQUEST_PARAMETERS = {"compress_kv": ("u", "gate", "rows"), "gather_history": ("tokens", "rows")}  # rows of one request
POOL_PARAMETERS = {"write_rows": ("x", "dest"), "copy_rows": ("source", "dest")}  # a row is what lands in the pool
BY_EXPERT = ("moe_permute", "experts", "moe_combine")  # a row is what the three make of it together


def row_count(name: str, arguments: Arguments) -> int:
    """How many rows the arguments of an op of ROW_PARAMETERS have."""
    return len(arguments[ROW_PARAMETERS[name][0]])


def row_size(name: str, arguments: Arguments) -> int:
    """How many numbers one row of the op's first parameter has."""
    first = arguments[ROW_PARAMETERS[name][0]]
    return int(first.numel()) // len(first)


def picked(arguments: Arguments, parameters: tuple[str, ...], index: Tensor) -> dict[str, Any]:
    """The arguments with rows `index` of the parameters named, repeats allowed."""
    return {name: _some(value, index) if name in parameters else value for name, value in arguments.items()}


def with_rows(name: str, arguments: Arguments, count: int) -> dict[str, Any]:
    """The arguments of an op of ROW_PARAMETERS with `count` rows: theirs over and over. They must have one."""
    return picked(arguments, ROW_PARAMETERS[name], torch.arange(count) % row_count(name, arguments))


def _some(value: Any, index: Tensor) -> Any:
    if isinstance(value, Rows):
        return Rows(*(getattr(value, field)[index].contiguous() for field in Rows.__slots__))
    return None if value is None else value[index].contiguous()
