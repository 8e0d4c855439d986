"""Manifold-constrained hyper-connections (arXiv 2512.24880): how n residual streams are mixed around each sublayer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpCase, OpSpec
from deepinfer_core.ops.cases import CLOSE, SUMS, Maker


def hc_mixes(
    streams: Tensor, fn: Tensor, base: Tensor, scale: Tensor, norm_eps: float, hc_eps: float, iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """streams [T, n, D], fn [(2+n)n, nD], base [(2+n)n], scale [3] -> float32 pre [T, n], post [T, n], comb [T, n, n].

    The projections of the normalised streams become sigmoid weights, and a matrix that `iterations` rounds of Sinkhorn
    make nearly doubly stochastic: softmax over the last index, columns, then (rows, columns) for each further round.
    """
    count = streams.shape[1]
    flat = streams.flatten(1).float()
    mixes = (flat @ fn.float().T) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + norm_eps)
    offset, factor = base.float(), scale.float()
    pre = torch.sigmoid(mixes[:, :count] * factor[0] + offset[:count]) + hc_eps
    post = 2 * torch.sigmoid(mixes[:, count : 2 * count] * factor[1] + offset[count : 2 * count])
    logits = mixes[:, 2 * count :] * factor[2] + offset[2 * count :]
    comb = torch.softmax(torch.unflatten(logits, -1, (count, count)), dim=-1) + hc_eps
    comb = comb / (comb.sum(-2, keepdim=True) + hc_eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + hc_eps)
        comb = comb / (comb.sum(-2, keepdim=True) + hc_eps)
    return pre, post, comb


def hc_collapse(streams: Tensor, pre: Tensor) -> Tensor:
    """The sublayer's input [T, D]: the sum of streams [T, n, D] weighted by pre [T, n]."""
    return (pre.float()[..., None] * streams.float()).sum(1).to(streams.dtype)


def hc_expand(y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """Stream k becomes post[k] * y + sum over j of comb[j, k] * stream j. y [T, D] is the sublayer's output."""
    mixed = torch.einsum("tjk,tjd->tkd", comb.float(), streams.float())
    return (post.float()[..., None] * y.float()[:, None] + mixed).to(streams.dtype)


def hc_mixes_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Zero rows, one stream, an odd number of them, rows of zeros."""
    make = Maker(device, dtype, seed)
    f32 = torch.float32
    for rows, n, dim in ((0, 4, 32), (1, 1, 7), (5, 4, 128), (9, 3, 33)):
        outputs = (2 + n) * n
        fn, base = make.normal(outputs, n * dim, scale=0.05, dtype=f32), make.normal(outputs, scale=0.5, dtype=f32)
        streams, scale = make.normal(rows, n, dim), 1 + make.normal(3, scale=0.1, dtype=f32)
        streams[rows // 2 :] *= 0 if rows == 9 else 1
        yield OpCase(f"{rows}x{n}x{dim}", (streams, fn, base, scale, 1e-20, 1e-6, 20))


def hc_collapse_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Zero rows, one stream, an odd width."""
    make = Maker(device, dtype, seed)
    for rows, n, dim in ((0, 4, 32), (1, 1, 7), (5, 4, 128), (9, 3, 33)):
        yield OpCase(f"{rows}x{n}x{dim}", (make.normal(rows, n, dim), make.normal(rows, n, dtype=torch.float32)))


def hc_expand_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Zero rows, one stream, an odd width; comb is far from symmetric."""
    make = Maker(device, dtype, seed)
    for rows, n, dim in ((0, 4, 32), (1, 1, 7), (5, 4, 128), (9, 3, 33)):
        post, comb = make.normal(rows, n, dtype=torch.float32), make.normal(rows, n, n, dtype=torch.float32)
        yield OpCase(f"{rows}x{n}x{dim}", (make.normal(rows, dim), make.normal(rows, n, dim), post, comb))


SPECS = (
    OpSpec("hc_mixes", "hyper_connection", hc_mixes, hc_mixes_cases, SUMS),
    OpSpec("hc_collapse", "hyper_connection", hc_collapse, hc_collapse_cases, CLOSE),
    OpSpec("hc_expand", "hyper_connection", hc_expand, hc_expand_cases, CLOSE),
)
