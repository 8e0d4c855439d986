"""The ops' formulas in float64, written anew from their definitions: what both a kernel and its reference round.

Only ops that round are here; the others give the same bits everywhere. What an op quantises by definition is quantised
here too; a case in which it quantises something that it computed has no float64 result, and its formula gives None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import PagedView, RowFormat, Rows, Weight, WeightFormat, WindowView
from deepinfer_core.ops.formats import decode_rows, dequantise
from deepinfer_core.ops.quant import fake_quant
from deepinfer_core.ops.rows import entry_rows, ring_index, step_rows, visible_entries, window_rows

Result = Tensor | tuple[Tensor | None, ...] | None  # None: no float64 result; within a tuple: not a rounded number


def _matrix(weight: Weight) -> Tensor:
    return dequantise(weight).double()


def _rounds(quantise: bool, weight: Weight) -> bool:
    return quantise and weight.format in (WeightFormat.FP8, WeightFormat.FP4)


def _inverse_rms(x: Tensor, eps: float) -> Tensor:
    return (x.square().mean(-1, keepdim=True) + eps) ** -0.5


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Result:
    wide = x.double()
    return wide * _inverse_rms(wide, eps) * weight.double()


def apply_rope(x: Tensor, position: Tensor, inv_freq: Tensor, inverse: bool = False) -> Result:
    """Angles are float32 products by definition. Pairs are complex numbers, turned by multiplication."""
    angle = (position.float()[:, None] * inv_freq).double()
    turn = torch.polar(torch.ones_like(angle), -angle if inverse else angle)
    start = x.shape[-1] - 2 * len(inv_freq)
    pairs = torch.view_as_complex(torch.unflatten(x[..., start:].double(), -1, (len(inv_freq), 2)).contiguous())
    turned = torch.view_as_real(pairs * (turn[:, None] if x.dim() == 3 else turn)).flatten(-2)
    return torch.cat([x[..., :start].double(), turned], dim=-1)


def hc_mixes(
    streams: Tensor, fn: Tensor, base: Tensor, scale: Tensor, norm_eps: float, hc_eps: float, iterations: int
) -> Result:
    n = streams.shape[1]
    flat, parts = streams.flatten(1).double(), (n, n, n * n)
    mixes = (flat * _inverse_rms(flat, norm_eps)) @ fn.double().T
    pre, post, comb = (
        part * factor + offset
        for part, factor, offset in zip(
            torch.split_with_sizes(mixes, parts, -1),
            scale.double(),
            torch.split_with_sizes(base.double(), parts),
            strict=True,
        )
    )
    matrix = comb.view(-1, n, n).softmax(-1) + hc_eps
    matrix = matrix / (matrix.sum(1, keepdim=True) + hc_eps)
    for _ in range(iterations - 1):
        for index in (2, 1):
            matrix = matrix / (matrix.sum(index, keepdim=True) + hc_eps)
    return pre.sigmoid() + hc_eps, 2 * post.sigmoid(), matrix


def hc_collapse(streams: Tensor, pre: Tensor) -> Result:
    return torch.einsum("tn,tnd->td", pre.double(), streams.double())


def hc_expand(y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Result:
    mixed = comb.double().transpose(1, 2) @ streams.double()
    return mixed + post.double()[..., None] * y.double()[:, None]


def linear(x: Tensor, weight: Weight, quantise: bool, out_dtype: torch.dtype | None = None) -> Result:
    rounded = fake_quant(x, RowFormat.FP8_E8M0_32) if _rounds(quantise, weight) else x
    return rounded.double() @ _matrix(weight).T


def grouped_linear(x: Tensor, weight: Weight) -> Result:
    matrices = _matrix(weight).view(x.shape[1], -1, x.shape[2])
    return torch.stack([x[:, g].double() @ matrix.T for g, matrix in enumerate(matrices)], dim=1)


def lm_head(x: Tensor, weight: Weight) -> Result:
    return x.double() @ _matrix(weight).T


def route(x: Tensor, gate: Weight, bias: Tensor, top_k: int, scale: float) -> Result:
    scores = torch.nn.functional.softplus(x.double() @ _matrix(gate).T).sqrt()
    order = torch.sort(scores + bias.double(), dim=-1, descending=True, stable=True).indices[:, :top_k]
    chosen = scores.gather(-1, order)
    return None, chosen / (chosen.sum(-1, keepdim=True) + 1e-20) * scale


def _swiglu(x: Tensor, w1: Weight, w3: Weight, limit: float) -> Tensor:
    gate, up = x.double() @ _matrix(w1).T, x.double() @ _matrix(w3).T
    gate = gate.clamp(max=limit)
    return gate * gate.sigmoid() * up.clamp(-limit, limit)


def gated_mlp(x: Tensor, w1: Weight, w3: Weight, w2: Weight, limit: float, quantise: bool) -> Result:
    return None if _rounds(quantise, w2) else _swiglu(x, w1, w3, limit) @ _matrix(w2).T


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
) -> Result:
    if _rounds(quantise, w2):
        return None
    result = torch.zeros(len(order), x.shape[1], dtype=torch.float64)
    for expert, (start, end) in enumerate(pairwise(offsets.tolist())):
        one = [Weight(w.data[expert], w.format, None if w.scale is None else w.scale[expert]) for w in (w1, w3, w2)]
        part = order[start:end].long()
        hidden = _swiglu(x[part // weights.shape[1]], one[0], one[1], limit)
        result[start:end] = (weights.double().flatten()[part, None] * hidden) @ _matrix(one[2]).T
    return result


def moe_combine(y: Tensor, order: Tensor, top_k: int) -> Result:
    total = torch.zeros(len(y) // top_k, y.shape[1], dtype=torch.float64)
    return total.index_add(0, order.long() // top_k, y.double())


def compress_kv(u: Tensor, gate: Tensor, pending: Tensor, rows: Rows, ratio: int, ring_rows: int) -> Result:
    dim = u.shape[1]
    group = rows.position.long()[:, None] + torch.arange(1 - ratio, 1)
    fresh, inside = step_rows(rows, group)
    before = decode_rows(pending[ring_index(rows, group, ring_rows)], RowFormat.F32, 2 * dim)
    pair = torch.where(inside[..., None], torch.cat([u, gate], dim=-1).float()[fresh], before).double()
    return (pair[..., :dim] * pair[..., dim:].softmax(1)).sum(1)


def index_scores(q: Tensor, weights: Tensor, keys: PagedView, rows: Rows, num_entries: int) -> Result:
    entry = torch.arange(num_entries).expand(len(rows), -1)
    visible = entry < visible_entries(rows, keys.ratio)[:, None]
    key = decode_rows(keys.pool[entry_rows(rows, keys, entry, visible)], keys.format, q.shape[-1]).double()
    matches = (key @ q.double().transpose(1, 2)).relu()
    return ((matches * weights.double()[:, None]).sum(-1)).masked_fill(~visible, float("-inf"))


def sparse_attention(
    q: Tensor,
    rows: Rows,
    window: WindowView,
    entries: PagedView | None,
    selected: Tensor | None,
    sink: Tensor,
    scale: float,
) -> Result:
    index, visible = window_rows(rows, window)
    keys = decode_rows(window.pool[index], window.format, q.shape[-1]).double()
    if entries is not None and selected is not None:
        chosen = (selected >= 0) & (rows.slot >= 0)[:, None]
        picked = entries.pool[entry_rows(rows, entries, selected, chosen)]
        keys = torch.cat([keys, decode_rows(picked, entries.format, q.shape[-1]).double()], dim=1)
        visible = torch.cat([visible, chosen], dim=1)
    keys = keys.masked_fill(~visible[..., None], 0.0)
    logits = (q.double() @ keys.transpose(1, 2) * scale).masked_fill(~visible[:, None], float("-inf"))
    sinks = sink.double()[None, :, None]
    top = torch.maximum(logits.amax(-1, keepdim=True), sinks)
    weights = (logits - top).exp()
    return weights @ keys / (weights.sum(-1, keepdim=True) + (sinks - top).exp())


def engram_gate(streams: Tensor, key: Tensor, value: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float) -> Result:
    x, k = streams.double(), key.double().view(streams.shape)
    normal_x, normal_k = x * _inverse_rms(x, eps) * q_weight.double(), k * _inverse_rms(k, eps) * k_weight.double()
    match = (normal_x * normal_k).sum(-1, keepdim=True) / streams.shape[-1] ** 0.5
    gate = torch.copysign(match.abs().clamp(min=1e-6).sqrt(), match).sigmoid()
    return x + gate * value.double()[:, None]


def apply_penalties(
    logits: Tensor, prompt_seen: Tensor, counts: Tensor, repetition: Tensor, presence: Tensor, frequency: Tensor
) -> Result:
    x, factor = logits.double(), repetition.double()[:, None]
    repeated = torch.where(x > 0, x / factor, x * factor).clamp(max=torch.finfo(torch.float32).max)
    x = torch.where(prompt_seen | (counts > 0), repeated, x)
    return x - frequency.double()[:, None] * counts - presence.double()[:, None] * (counts > 0)


def top_logprobs(logits: Tensor, tokens: Tensor, k: int) -> Result:
    logprobs = logits.double().log_softmax(-1)
    ids = torch.sort(logits + 0.0, dim=-1, descending=True, stable=True).indices[:, :k]
    return logprobs.gather(1, tokens[:, None]).squeeze(1), None, None, logprobs.gather(1, ids)


FORMULAS: Mapping[str, Callable[..., Result]] = {
    function.__name__: function
    for function in (
        rms_norm,
        apply_rope,
        hc_mixes,
        hc_collapse,
        hc_expand,
        linear,
        grouped_linear,
        lm_head,
        route,
        experts,
        moe_combine,
        gated_mlp,
        compress_kv,
        index_scores,
        sparse_attention,
        engram_gate,
        apply_penalties,
        top_logprobs,
    )
}
