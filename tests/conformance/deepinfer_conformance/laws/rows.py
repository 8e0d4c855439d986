"""Whose bits a row has: an op's rows in one batch against the same rows in others, for every op of the catalogue.

What a row is for each op is said in `op_rows.py`. All of this runs on the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from deepinfer_conformance.inputs import Arguments, tensors
from deepinfer_conformance.laws.moving import same_bits
from deepinfer_conformance.op_rows import POOL_PARAMETERS, REQUEST_PARAMETERS, ROW_PARAMETERS, picked
from deepinfer_core.ops.table import OpTable

# Every op that has rows; "experts" stands for itself with the permutation before and the sum behind it.
HELD = (*sorted([*ROW_PARAMETERS, *REQUEST_PARAMETERS, *POOL_PARAMETERS]), "experts")
Trials = Iterator[tuple[list[int], bool]]  # rows of a batch, and whether each had the bits that it has in the whole


def row_trials(ops: OpTable, name: str, arguments: Arguments, seed: int) -> Trials:
    """Tries one case of an op of HELD, on the device. Nothing comes where the case has no rows."""
    if name in ROW_PARAMETERS:
        return _by_row(getattr(ops, name), ROW_PARAMETERS[name], arguments, seed)
    if name in REQUEST_PARAMETERS:
        return _by_request(getattr(ops, name), REQUEST_PARAMETERS[name], arguments)
    if name in POOL_PARAMETERS:
        return _by_pool_row(getattr(ops, name), POOL_PARAMETERS[name], arguments)
    return _by_expert(ops, arguments, seed)


def batches(rows: int, seed: int) -> Iterator[Tensor]:
    """Batches made of `rows` rows: either end alone, all of them backwards, some at random with repeats."""
    generator = torch.Generator().manual_seed(seed)
    yield torch.tensor([0])
    yield torch.tensor([rows - 1])
    yield torch.arange(rows).flip(0)
    for size in (2, rows, 2 * rows + 1):
        yield torch.randint(0, rows, (size,), generator=generator)


def _by_row(kernel: Callable[..., Any], parameters: tuple[str, ...], arguments: Arguments, seed: int) -> Trials:
    first: Tensor = arguments[parameters[0]]
    if not len(first):
        return
    whole = tensors(kernel(**arguments))
    for index in batches(len(first), seed):
        there = index.to(first.device)
        part = tensors(kernel(**picked(arguments, parameters, there)))
        yield index.tolist(), same_bits([x[there] for x in whole], part)


def _by_request(kernel: Callable[..., Any], parameters: tuple[str, ...], arguments: Arguments) -> Trials:
    rows = arguments["rows"]
    if not len(rows):
        return
    whole = kernel(**arguments)
    for slot in sorted(set(rows.slot.tolist()) - {-1}):
        index = (rows.slot == slot).nonzero().flatten()
        alone = picked(arguments, parameters, index)
        alone["rows"].first_row.zero_()
        yield index.tolist(), same_bits(whole[index], kernel(**alone))


def _by_pool_row(kernel: Callable[..., Any], parameters: tuple[str, ...], arguments: Arguments) -> Trials:
    dest: Tensor = arguments["dest"]
    whole = {**arguments, "pool": arguments["pool"].clone()}
    kernel(**whole)
    for row in range(len(dest)):
        index = torch.tensor([row], device=dest.device)
        alone = {**arguments, "pool": arguments["pool"].clone()}
        kernel(**picked(alone, parameters, index))
        written = dest[index][dest[index] >= 0]
        yield [row], same_bits(whole["pool"][written], alone["pool"][written])


def _by_expert(ops: OpTable, arguments: Arguments, seed: int) -> Trials:
    """Through permutation, experts and sum, which only together have rows."""
    weights, count = arguments["weights"], len(arguments["offsets"]) - 1
    rows, top_k = weights.shape
    if not rows:
        return
    chosen = chosen_experts(arguments["order"], arguments["offsets"]).view(rows, top_k)

    def through(index: Tensor) -> Tensor:
        given = picked(arguments, ("x", "weights"), index)
        given["order"], given["offsets"] = ops.moe_permute(chosen[index], count)
        return ops.moe_combine(ops.experts(**given), given["order"], top_k)

    whole = through(torch.arange(rows, device=weights.device))
    for index in batches(rows, seed):
        there = index.to(weights.device)
        yield index.tolist(), same_bits(whole[there], through(there))


def chosen_experts(order: Tensor, offsets: Tensor) -> Tensor:
    """int32 [T*k]: the expert of each flat index t*k + j, from what `moe_permute` made of them; -1 for padding."""
    chosen = torch.full_like(order, -1)
    for expert, (start, end) in enumerate(pairwise(offsets.tolist())):
        chosen[order[start:end].long()] = expert
    return chosen
