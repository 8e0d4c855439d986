"""Inputs of ops with NaN, infinity or denormal numbers in some of their rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deepinfer_conformance.inputs import Arguments
from deepinfer_conformance.op_rows import ROW_PARAMETERS, row_count

SPECIALS = ("nan", "inf", "denormal")

# Ops of rows whose results are numbers. Where rows choose (experts, entries, tokens) nothing is promised about NaN.
FLOAT_OPS = (
    "apply_rope",
    "engram_gate",
    "fake_quant",
    "gated_mlp",
    "grouped_linear",
    "hc_collapse",
    "hc_expand",
    "hc_mixes",
    "index_scores",
    "linear",
    "lm_head",
    "rms_norm",
    "sparse_attention",
)


def special_case(name: str, arguments: Arguments, special: str) -> tuple[dict[str, Any], Tensor]:
    """The arguments with the special number in the first row of the op's first parameter, and which rows are special.

    Denormal numbers fill the row; NaN and infinity stand at one place of it.
    """
    parameter = ROW_PARAMETERS[name][0]
    x = arguments[parameter].clone()
    marked = torch.zeros(row_count(name, arguments), dtype=torch.bool)
    marked[0] = True
    if special == "denormal":
        x[0] = (x[0].float().sign() * 1e-40).to(x.dtype)
    else:
        x[0].view(-1)[3] = float(special)
    return {**arguments, parameter: x}, marked
