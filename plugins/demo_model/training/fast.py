"""Makes the dense implementation fast on a GPU: block-sparse attention, grouped experts, compiled inner functions.

The numbers stay those of the dense implementation up to the rounding of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from dense_v41 import DenseModel, attention, block, compress, draft, engram, model, moe, quantise
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from training.dense import device

TILE = 128  # queries and keys of a block that is looked at or skipped as one

# Each is one graph, shared by all layers.
COMPILED = (
    (block, "enter"),
    (block, "expand"),
    (attention.Projections, "query"),
    (attention.Projections, "window_key"),
    (attention.Projections, "output"),
    (attention, "index_loss"),
    (compress.Compressor, "forward"),
    (compress.Indexer, "keys"),
    (compress.Indexer, "scores"),
    (compress.Indexer, "select"),
    (engram.Engram, "forward"),
    (model.DenseModel, "_embedded"),
)
COMPILED_FOR_DRAFTS = (
    (block, "enter"),
    (block, "expand"),
    (attention.Projections, "query"),
    (attention.Projections, "window_key"),
    (attention.Projections, "output"),
    (draft, "attend_block"),
    (draft.DraftStage, "finish"),
)


def make_fast(dense: DenseModel) -> None:
    """Switch this process to the compiled functions and this model's layers to sparse attention and grouped experts.

    Does nothing without a GPU. Sequences must be multiples of TILE tokens.
    """
    if device().type != "cuda":
        return
    _compile(COMPILED)
    attend, routed = compiled(flex_attend), compiled(grouped_experts)
    for layer in dense.layers:
        sink, size = layer.attn.attn_sink, layer.attn.config.head_dim
        layer.attn.attend = partial(sparse_attend, attend, sink, size**-0.5)
        layer.ffn.forward = partial(grouped_forward, routed, layer.ffn)


def make_drafts_fast(dense: DenseModel) -> None:
    """As `make_fast`, for the draft stages alone: the layers run one batch for many of theirs."""
    if device().type != "cuda":
        return
    _compile(COMPILED_FOR_DRAFTS)
    routed = compiled(grouped_experts)
    for stage in dense.mtp:
        stage.ffn.forward = partial(grouped_forward, routed, stage.ffn)


def _compile(functions: Iterable[tuple[Any, str]]) -> None:
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 64
    for owner, name in functions:
        setattr(owner, name, compiled(getattr(owner, name)))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as fixed-shape graphs."""
    return torch.compile(function, dynamic=False)


# --- attention ---------------------------------------------------------------------------------------------------


def sparse_attend(
    attend: Callable[..., Tensor], sink: Tensor, scale: float, q: Tensor, keys: Tensor, visible: Tensor
) -> Tensor:
    """As `Projections.attend`, skipping the tiles of which nothing is visible."""
    return attend(q, keys, sink, scale, block_mask(visible))


def block_mask(visible: Tensor) -> BlockMask:
    """The tiles of visible [B, K, N] of which something is visible; within them `visible` itself decides."""
    tiles = visible.unflatten(2, (-1, TILE)).any(-1).unflatten(1, (-1, TILE)).any(2).unsqueeze(1).to(torch.int32)
    count = tiles.sum(-1, dtype=torch.int32)
    index = tiles.argsort(dim=-1, descending=True, stable=True).to(torch.int32)

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return visible[batch, query, key]

    return BlockMask.from_kv_blocks(count, index, BLOCK_SIZE=TILE, mask_mod=seen, seq_lengths=visible.shape[1:])


def flex_attend(q: Tensor, keys: Tensor, sink: Tensor, scale: float, mask: BlockMask) -> Tensor:
    """Attention whose softmax has the sink's term in its denominator: a softmax without it, scaled down after."""
    shared = keys.unsqueeze(1)
    heads, aux = flex_attention(
        q.transpose(1, 2),
        shared,
        shared,
        block_mask=mask,
        scale=scale,
        enable_gqa=True,
        return_aux=AuxRequest(lse=True),
    )
    kept = torch.sigmoid(aux.lse - sink.view(1, -1, 1))
    return (heads * kept.unsqueeze(-1).to(heads.dtype)).transpose(1, 2)


# --- experts -----------------------------------------------------------------------------------------------------


class _Dealt(torch.autograd.Function):
    """Rows [R, D] to one copy for each chosen expert, in expert order [R * k, D]."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, inverse: Tensor, copies: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.copies = copies
        return rows[order // copies]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        return grads[0][inverse].unflatten(0, (-1, ctx.copies)).sum(1), None, None, None


class _Gathered(torch.autograd.Function):
    """The way back: the sum of each row's copies, in float32."""

    @staticmethod
    def forward(ctx: Any, dealt: Tensor, order: Tensor, inverse: Tensor, copies: int) -> Tensor:
        ctx.save_for_backward(order)
        ctx.copies = copies
        return dealt[inverse].unflatten(0, (-1, copies)).float().sum(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (order,) = ctx.saved_tensors
        return grads[0].to(torch.bfloat16)[order // ctx.copies], None, None, None


def grouped_forward(routed: Callable[..., tuple[Tensor, Tensor]], layer: moe.MoE, x: Tensor) -> Tensor:
    """As `MoE.forward`, with one grouped product over each expert's rows instead of padded batches."""
    total, layer.load = routed(layer, x.flatten(0, -2))
    return total.view_as(x)


def grouped_experts(layer: moe.MoE, rows: Tensor) -> tuple[Tensor, Tensor]:
    """rows [R, D] -> ([R, D], rows of each expert)."""
    copies = layer.gate.top_k
    chosen, weights = layer.gate(rows)
    flat = chosen.flatten()
    order = flat.argsort(stable=True)
    inverse = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=rows.device))
    load = (flat[:, None] == torch.arange(len(layer.load), device=rows.device)).sum(0)
    ends = load.cumsum(0).to(torch.int32)
    experts = layer.experts
    w13 = _matrix(torch.cat((experts.w1, experts.w3), 1))
    dealt = _Dealt.apply(quantise.fp8(rows), order, inverse, copies)
    shares = weights.flatten()[order].unsqueeze(-1)
    gate, up = torch.nn.functional.grouped_mm(dealt, w13.mT, offs=ends).chunk(2, -1)
    hidden = quantise.fp8((moe.gated(gate, up, experts.limit) * shares).to(rows.dtype))
    out = torch.nn.functional.grouped_mm(hidden, _matrix(experts.w2).mT, offs=ends)
    total = layer.shared_experts(rows).float() + _Gathered.apply(out, order, inverse, copies)
    return total.to(rows.dtype), load


def _matrix(stack: Tensor) -> Tensor:
    return quantise.fp4(stack).to(torch.bfloat16)
