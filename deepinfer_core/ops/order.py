"""The one total order by which ops choose: the higher score first, equal scores by the lower index."""

from __future__ import annotations

import torch
from torch import Tensor

_FEW = 16  # picking the best beats sorting where fewer than a 16th of the scores are wanted


def best_first(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(scores [..., m], int64 indices [..., m]) of the best m = min(count, size) along the last dimension, in order.

    Adding zero turns -0.0 into 0.0, so that both zeros tie on every device. How many are asked for changes none.
    """
    scores = scores + 0.0
    if scores.dtype == torch.float32 and count * _FEW < scores.shape[-1]:
        _, index = torch.topk(_keys(scores), count, dim=-1)
        return scores.gather(-1, index), index
    values, index = torch.sort(scores, dim=-1, descending=True, stable=True)
    return values[..., :count], index[..., :count]


def best_of(scores: Tensor, index: Tensor) -> Tensor:
    """The best of the indices int64 [n, m] by their scores [n, m], in whatever order they stand: int64 [n].

    A row whose scores are NaN gives its first index.
    """
    is_best = scores == scores.amax(dim=-1, keepdim=True)
    lowest = index.masked_fill(~is_best, torch.iinfo(torch.int64).max).amin(dim=-1)
    return torch.where(is_best.any(dim=-1), lowest, index[:, 0])


def _keys(scores: Tensor) -> Tensor:
    """Distinct int64 numbers in the order of (score, lower index): the float's bits, made to count like an integer, in
    the upper half and the index subtracted below."""
    bits = scores.view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.long() << 32) - torch.arange(scores.shape[-1], device=scores.device)
