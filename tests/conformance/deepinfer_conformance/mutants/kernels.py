"""Kernels with one fault each. Everything but the fault is the reference's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import Kernel, PagedView, RowFormat, Rows, WindowView
from deepinfer_core.ops import attention, cache, index, linear, moe, norm, quant, sample
from deepinfer_core.ops.formats import decode_rows, dequantise
from deepinfer_core.ops.rows import window_rows


def _like(reference: Kernel) -> Callable[[Kernel], Kernel]:
    """Gives a kernel its reference's signature, which is checked when the device opens."""
    return wraps(reference)


# --- caches --------------------------------------------------------------------------------------------------------


@_like(cache.write_rows)
def write_one_row_on(pool: Tensor, x: Tensor, dest: Tensor, format: RowFormat) -> None:
    """Every row lands one row further."""
    cache.write_rows(pool, x, torch.where(dest >= 0, (dest + 1) % len(pool), -1), format)


@_like(cache.write_rows)
def write_skipped_rows(pool: Tensor, x: Tensor, dest: Tensor, format: RowFormat) -> None:
    """-1 is taken for an index, and names the pool's last row."""
    cache.write_rows(pool, x, dest % len(pool), format)


@_like(cache.write_rows)
def write_a_row_too_many(pool: Tensor, x: Tensor, dest: Tensor, format: RowFormat) -> None:
    """A vector store that is wider than a row clears the beginning of the next one."""
    cache.write_rows(pool, x, dest, format)
    behind = dest[(dest >= 0) & (dest + 1 < len(pool))] + 1
    behind = behind[~torch.isin(behind, dest)]
    pool[behind.long(), :4] = 0


@_like(cache.copy_rows)
def copy_all_but_the_last(pool: Tensor, source: Tensor, dest: Tensor) -> None:
    """The last row of a copy is forgotten."""
    cache.copy_rows(pool, source[:-1], dest[:-1])


@_like(cache.read_rows)
def read_scales_as_numbers(pool: Tensor, index: Tensor, format: RowFormat, dim: int) -> Tensor:
    """The scale byte e of an fp8 row is taken for the number e and not for 2^(e - 127)."""
    if format is not RowFormat.FP8_E8M0_32:
        return cache.read_rows(pool, index, format, dim)
    stored = pool[index.long().clamp(min=0)]
    values = stored[..., :dim].contiguous().view(torch.float8_e4m3fn).float()
    return torch.where((index >= 0)[..., None], values * stored[..., dim:].repeat_interleave(32, dim=-1), 0.0)


# --- attention and selection ---------------------------------------------------------------------------------------


@_like(attention.sparse_attention)
def attend_to_a_window_too_long(
    q: Tensor,
    rows: Rows,
    window: WindowView,
    entries: PagedView | None,
    selected: Tensor | None,
    sink: Tensor,
    scale: float,
) -> Tensor:
    """One position more than the window has."""
    longer = replace(window, window=window.window + 1)
    return attention.sparse_attention(q, rows, longer, entries, selected, sink, scale)


@_like(attention.sparse_attention)
def attend_below_the_floor(
    q: Tensor,
    rows: Rows,
    window: WindowView,
    entries: PagedView | None,
    selected: Tensor | None,
    sink: Tensor,
    scale: float,
) -> Tensor:
    """The lowest position that a row may look at is ignored."""
    anywhere = replace(rows, floor=torch.zeros_like(rows.floor))
    return attention.sparse_attention(q, anywhere, window, entries, selected, sink, scale)


@_like(attention.sparse_attention)
def attend_without_a_sink(
    q: Tensor,
    rows: Rows,
    window: WindowView,
    entries: PagedView | None,
    selected: Tensor | None,
    sink: Tensor,
    scale: float,
) -> Tensor:
    """The sink takes no probability."""
    closed = torch.full_like(sink, -torch.inf)
    return attention.sparse_attention(q, rows, window, entries, selected, closed, scale)


@_like(attention.sparse_attention)
def attend_to_hidden_rows_with_weight_zero(
    q: Tensor,
    rows: Rows,
    window: WindowView,
    entries: PagedView | None,
    selected: Tensor | None,
    sink: Tensor,
    scale: float,
) -> Tensor:
    """Rows beyond a request's length are read and multiplied by zero, which is no zero where they hold NaN."""
    found, visible = window_rows(rows, window)
    hidden = decode_rows(window.pool[found], window.format, q.shape[-1]) * (~visible)[..., None] * 0.0
    return attention.sparse_attention(q, rows, window, entries, selected, sink, scale) + hidden.sum(1)[:, None].to(
        q.dtype
    )


@_like(index.index_scores)
def score_unended_groups(q: Tensor, weights: Tensor, keys: PagedView, rows: Rows, num_entries: int) -> Tensor:
    """An entry is scored as soon as its group has begun."""
    ahead = replace(rows, position=rows.position + keys.ratio - 1)
    return index.index_scores(q, weights, keys, ahead, num_entries)


@_like(index.select_topk)
def select_the_higher_of_equals(
    scores: Tensor, top_k: int, blocks: Tensor | None = None, block_size: int = 1
) -> Tensor:
    """Equal scores fall to the higher entry."""
    if blocks is not None:
        inside = blocks.repeat_interleave(block_size, dim=-1)[:, : scores.shape[1]]
        scores = scores.masked_fill(~inside, -torch.inf)
    chosen = index.select_topk(scores.flip(1), top_k)
    mirrored = torch.where(chosen >= 0, scores.shape[1] - 1 - chosen, scores.shape[1]).sort(-1).values
    return torch.where(mirrored < scores.shape[1], mirrored, -1).to(torch.int32)


# --- matrices and rows ---------------------------------------------------------------------------------------------


@_like(linear.linear)
def sum_in_the_batchs_order(x: Tensor, weight: Any, quantise: bool, out_dtype: torch.dtype | None = None) -> Tensor:
    """A reduction that is split in two for small batches, as kernels do to keep a device busy."""
    if len(x) > 4:
        return linear.linear(x, weight, quantise, out_dtype)
    x = quant.fake_quant(x, RowFormat.FP8_E8M0_32) if quantise and weight.scale is not None else x
    half, matrix = x.shape[1] // 2, dequantise(weight)
    parts = (x[:, :half].float() @ matrix[:, :half].T, x[:, half:].float() @ matrix[:, half:].T)
    return (parts[0] + parts[1]).to(out_dtype or x.dtype)


@_like(moe.moe_permute)
def permute_padding_as_an_expert(experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
    """The id -1 of a padding row is taken for an index, and names the last expert."""
    return moe.moe_permute(torch.where(experts == -1, num_experts - 1, experts), num_experts)


@_like(norm.rms_norm)
def norm_in_place(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The input is used as scratch."""
    result = norm.rms_norm(x, weight, eps)
    x.copy_(result)
    return result


@_like(norm.rms_norm)
def norm_of_some_rows(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """A launch with no rows is an error."""
    if len(x) == 0:
        raise ValueError("invalid configuration: a grid of 0 blocks")
    return norm.rms_norm(x, weight, eps)


@_like(norm.rms_norm)
def norm_in_double(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Asks torch for float64 everywhere, to compute in it here, and leaves it at that."""
    torch.set_default_dtype(torch.float64)
    return norm.rms_norm(x, weight, eps)


def drifting_norm() -> Kernel:
    """A sum whose order changes from call to call, as with atomic additions."""
    calls = itertools.count()

    @_like(norm.rms_norm)
    def kernel(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return norm.rms_norm(x, weight, eps) * (1 + 2.0**-22 * (next(calls) % 2))

    return kernel


# --- sampling ------------------------------------------------------------------------------------------------------


def drawing(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Kernel:
    """`sample_tokens` of changed arguments."""
    names = sample.sample_tokens.__code__.co_varnames[: sample.sample_tokens.__code__.co_argcount]

    @_like(sample.sample_tokens)
    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        return sample.sample_tokens(**change({**dict(zip(names, args, strict=False)), **kwargs}))

    return kernel


def hotter(given: dict[str, Any]) -> dict[str, Any]:
    """Every draw is from a distribution that is a little too flat."""
    heat = given["temperature"]
    return given if heat is None else {**given, "temperature": heat * 1.15}


def next_stream(given: dict[str, Any]) -> dict[str, Any]:
    """The random numbers of the next position."""
    return {**given, "position": given["position"] + 1}


def by_row_number(given: dict[str, Any]) -> dict[str, Any]:
    """The random numbers depend on where in the batch a row stands."""
    return {**given, "sample": given["sample"] + torch.arange(len(given["sample"]))}


def ties_kept(given: dict[str, Any]) -> dict[str, Any]:
    """top-k by a threshold: whatever equals the k-th best logit stays."""
    if given["top_k"] is None or len(given["logits"]) == 0:
        return given
    k = given["top_k"].long().clamp(1, given["logits"].shape[1])
    threshold = given["logits"].sort(dim=-1, descending=True).values.gather(1, k[:, None] - 1)
    kept = (given["logits"] >= threshold).sum(-1).to(given["top_k"].dtype)
    return {**given, "top_k": torch.where(given["top_k"] < 1, given["top_k"], kept), "max_candidates": None}


@_like(sample.sample_tokens)
def greedy_takes_the_last(*args: Any, **kwargs: Any) -> Tensor:
    """Of equal logits the greedy token is the last one."""
    drawn = sample.sample_tokens(*args, **kwargs)
    logits, temperature = args[0], args[1]
    last = logits.shape[1] - 1 - logits.flip(1).argmax(dim=-1)
    return last if temperature is None else torch.where(temperature < sample.GREEDY_BELOW, last, drawn)


@_like(sample.apply_token_mask)
def mask_whole_words(logits: Tensor, mask: Tensor) -> Tensor:
    """The last tokens, which do not fill a word of the mask, are not looked up in it."""
    masked, whole = sample.apply_token_mask(logits, mask), logits.shape[1] // 32 * 32
    return torch.cat([masked[:, :whole], logits[:, whole:]], dim=1)


@_like(sample.verify_drafts)
def count_every_equal_draft(target: Tensor, drafts: Tensor, num_drafts: Tensor) -> Tensor:
    """Drafts behind the first wrong one are counted too."""
    exists = torch.arange(drafts.shape[1]) < num_drafts[:, None]
    return 1 + (exists & (target[:, :-1] == drafts)).sum(-1, dtype=torch.int32)
