"""Mixture of experts: routing, the permutation by expert, the experts themselves and their sum, and a dense MLP."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from deepinfer_core.interfaces.ops import OpCase, OpSpec, Weight, WeightFormat
from deepinfer_core.ops.cases import CLOSE, EXACT, SUMS, Maker
from deepinfer_core.ops.formats import dequantise
from deepinfer_core.ops.linear import linear
from deepinfer_core.ops.order import best_first


def route(x: Tensor, gate: Weight, bias: Tensor, top_k: int, scale: float) -> tuple[Tensor, Tensor]:
    """x [T, D], gate [E, D], bias [E] -> experts int32 [T, k] and weights float32 [T, k].

    Scores are sqrt(softplus(x . gate)). The best k of score + bias are chosen, best first, ties by the lower id; their
    weights are the scores without bias, divided by their sum and multiplied by `scale`.
    """
    scores = softplus(x.float() @ dequantise(gate).T).sqrt()
    _, chosen = best_first(scores + bias.float(), top_k)
    weights = scores.gather(-1, chosen)
    return chosen.to(torch.int32), weights / (weights.sum(-1, keepdim=True) + 1e-20) * scale


def moe_permute(experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
    """experts [T, k] -> order int32 [T*k], offsets int32 [E+1].

    `order` holds the flat indices t*k + j sorted stably by expert; expert e has order[offsets[e] : offsets[e+1]]. Ids
    outside 0..E-1 are padding: they come last, beyond offsets[E].
    """
    flat = experts.flatten().long()
    key = torch.where((flat >= 0) & (flat < num_experts), flat, num_experts)
    ordered, order = torch.sort(key, stable=True)
    bounds = torch.arange(num_experts + 1, device=flat.device)
    return order.to(torch.int32), torch.searchsorted(ordered, bounds, out_int32=True)


def experts(
    x: Tensor,
    order: Tensor,
    offsets: Tensor,
    weights: Tensor,
    w1: Weight,
    w3: Weight,
    w2: Weight,
    limit: float,
    quantise: bool,
) -> Tensor:
    """x [T, D] through the experts chosen for it -> float32 [T*k, D], in the order of `moe_permute`.

    w1, w3 are stacks [E, F, D], w2 [E, D, F]; weights [T, k] are applied before w2. Rows beyond offsets[E] are zero.
    """
    top_k = weights.shape[1]
    routing = weights.float().flatten()
    y = torch.zeros(order.shape[0], x.shape[1], dtype=torch.float32, device=x.device)
    bounds = offsets.tolist()
    for expert, (start, end) in enumerate(pairwise(bounds)):
        if start == end:
            continue
        part = order[start:end].long()
        hidden = _swiglu(x[part // top_k], _one(w1, expert), _one(w3, expert), limit, quantise)
        hidden = (routing[part, None] * hidden).to(x.dtype)
        y[start:end] = linear(hidden, _one(w2, expert), quantise, torch.float32)
    return y


def moe_combine(y: Tensor, order: Tensor, top_k: int) -> Tensor:
    """y [T*k, D] in sorted order -> float32 [T, D]: the k parts of a row, added in the router's order."""
    parts = torch.empty_like(y, dtype=torch.float32)
    parts[order.long()] = y.float()
    parts = torch.unflatten(parts, 0, (y.shape[0] // top_k, top_k))
    total = parts[:, 0]
    for choice in range(1, top_k):
        total = total + parts[:, choice]
    return total


def gated_mlp(x: Tensor, w1: Weight, w3: Weight, w2: Weight, limit: float, quantise: bool) -> Tensor:
    """x [T, D] -> [T, D]: w2 of the clamped SwiGLU of w1 and w3 [F, D]."""
    hidden = _swiglu(x, w1, w3, limit, quantise).to(x.dtype)
    return linear(hidden, w2, quantise)


def _swiglu(x: Tensor, w1: Weight, w3: Weight, limit: float, quantise: bool) -> Tensor:
    """silu(min(w1 x, limit)) * clamp(w3 x, -limit, limit) in float32."""
    gate = linear(x, w1, quantise, torch.float32).clamp(max=limit)
    up = linear(x, w3, quantise, torch.float32).clamp(-limit, limit)
    return silu(gate) * up


def _one(stack: Weight, expert: int) -> Weight:
    return Weight(stack.data[expert], stack.format, None if stack.scale is None else stack.scale[expert])


def route_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Zero rows, odd numbers of experts, k = 1 and k = E, ties everywhere, a bias that decides."""
    make = Maker(device, dtype, seed)
    for rows, dim, count, top_k in ((0, 64, 8, 2), (1, 33, 5, 1), (7, 64, 8, 8), (9, 64, 384, 6)):
        gate, bias = make.weight(WeightFormat.BF16, count, dim), make.normal(count, scale=0.1, dtype=torch.float32)
        yield OpCase(f"{rows}x{dim}, {top_k} of {count}", (make.normal(rows, dim), gate, bias, top_k, 1.5))
    gate = make.weight(WeightFormat.F32, 6, 32)
    yield OpCase("ties", (torch.zeros(2, 32, device=device, dtype=dtype), gate, torch.zeros(6, device=device), 3, 1.0))
    bias = torch.tensor([0.0, 9.0, 0.0, 9.0, -9.0, 9.0], device=device)
    yield OpCase("the bias decides", (make.normal(3, 32, scale=0.01), gate, bias, 3, 2.5))


def moe_permute_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Zero rows, experts without rows, ids on both sides of the range."""
    make = Maker(device, dtype, seed)
    for rows, top_k, low, high, count in ((0, 2, 0, 4, 4), (1, 1, 2, 3, 7), (13, 3, -2, 9, 7), (64, 6, 0, 384, 384)):
        chosen = make.integers(low, high, rows, top_k, dtype=torch.int32)
        yield OpCase(f"{rows}x{top_k} in {low}..{high - 1} of {count}", (chosen, count))


def experts_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Each stack format, quantised and not; zero rows, experts without rows, padding ids; a limit that clamps."""
    make = Maker(device, dtype, seed)
    for format in WeightFormat:
        for rows, top_k, count, limit in ((0, 2, 4, 10.0), (1, 1, 3, 0.5), (11, 2, 5, 1.0)):
            chosen = make.integers(-1, count, rows, top_k, dtype=torch.int32)
            order, offsets = moe_permute(chosen, count)
            w1, w3 = (make.weight(format, count, 32, 64) for _ in range(2))
            w2, weights = make.weight(format, count, 64, 32), make.normal(rows, top_k, dtype=torch.float32).abs()
            quantise = rows != 1
            args = (make.normal(rows, 64), order, offsets, weights, w1, w3, w2, limit, quantise)
            yield OpCase(f"{format.value}, {rows} rows, {top_k} of {count}", args)


def moe_combine_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Zero rows, k = 1, an odd width."""
    make = Maker(device, dtype, seed)
    for rows, top_k, dim in ((0, 2, 32), (3, 1, 7), (9, 6, 65)):
        order, _ = moe_permute(make.integers(0, 8, rows, top_k, dtype=torch.int32), 8)
        yield OpCase(f"{rows}x{top_k}x{dim}", (make.normal(rows * top_k, dim, dtype=torch.float32), order, top_k))


def gated_mlp_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Each weight format, quantised and not; zero rows; a limit that clamps."""
    make = Maker(device, dtype, seed)
    for format in WeightFormat:
        for rows, limit in ((0, 10.0), (1, 0.5), (7, 1.0)):
            w1, w3, w2 = make.weight(format, 96, 64), make.weight(format, 96, 64), make.weight(format, 64, 96)
            args = (make.normal(rows, 64), w1, w3, w2, limit, rows != 1)
            yield OpCase(f"{format.value}, {rows} rows, limit {limit}", args)


SPECS = (
    OpSpec("route", "moe", route, route_cases, SUMS),
    OpSpec("moe_permute", "moe", moe_permute, moe_permute_cases, EXACT),
    OpSpec("experts", "moe", experts, experts_cases, SUMS),
    OpSpec("moe_combine", "moe", moe_combine, moe_combine_cases, CLOSE),
    OpSpec("gated_mlp", "moe", gated_mlp, gated_mlp_cases, SUMS),
)
