"""Puts a model together from its configuration and its weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deepinfer_core.interfaces.model import ModelContext, ModelInfo
from deepinfer_core.models.deepseek_v41.attention import Attention
from deepinfer_core.models.deepseek_v41.caches import Caches, choose_formats
from deepinfer_core.models.deepseek_v41.compressor import Compressor
from deepinfer_core.models.deepseek_v41.config import DeepseekV41Config, EngramConfig
from deepinfer_core.models.deepseek_v41.draft import DraftWeights
from deepinfer_core.models.deepseek_v41.engram import Engram, TokenClasses
from deepinfer_core.models.deepseek_v41.engram_tables import HashConstants, hash_constants, table_primes
from deepinfer_core.models.deepseek_v41.indexer import Indexer
from deepinfer_core.models.deepseek_v41.layer import Layer, LayerParts
from deepinfer_core.models.deepseek_v41.model import DeepseekV41Model
from deepinfer_core.models.deepseek_v41.moe import Moe
from deepinfer_core.models.deepseek_v41.plan import LayerPlan, Plan
from deepinfer_core.models.deepseek_v41.rope import inverse_frequencies
from deepinfer_core.models.deepseek_v41.runtime import Runtime
from deepinfer_core.models.deepseek_v41.weights import LayerWeights, ModelWeights


def assemble_model(
    config: DeepseekV41Config,
    plan: Plan,
    info: ModelInfo,
    context: ModelContext,
    weights: ModelWeights,
    draft: DraftWeights | None,
    token_classes: Sequence[int] | None,
) -> DeepseekV41Model:
    """`token_classes` gives the class of each token id; None for a model without n-gram tables."""
    caches = Caches(config, plan, choose_formats(context.options))
    runtime = Runtime(context.ops, config, caches, context.options.dtype, context.options.activation_quant)
    builder = _LayerBuilder(runtime, plan, context, token_classes)
    layers = [builder.build(layer, tensors) for layer, tensors in zip(plan.layers, weights.layers, strict=True)]
    classes = None
    if token_classes is not None:
        class_of = torch.tensor(token_classes, dtype=torch.int64, device=context.device)
        classes = TokenClasses(runtime, class_of)
    return DeepseekV41Model(runtime, info, plan, weights, layers, classes, draft)


class _LayerBuilder:
    """Builds layers that share frequencies and hash constants."""

    def __init__(
        self, runtime: Runtime, plan: Plan, context: ModelContext, token_classes: Sequence[int] | None
    ) -> None:
        self._runtime = runtime
        self._boundary = plan.boundary
        self._context = context
        config = runtime.config
        self._frequencies = {
            compressed: inverse_frequencies(config, int(compressed)).to(context.device) for compressed in (False, True)
        }
        self._constants = _all_constants(config.engram) if config.engram else ()
        self._pad = token_classes[config.engram.pad_token_id] if config.engram and token_classes else 0

    def build(self, plan: LayerPlan, weights: LayerWeights) -> Layer:
        runtime, context, inv_freq = self._runtime, self._context, self._frequencies[plan.ratio > 0]
        ranks, placement = context.expert_communicator, context.placement
        parts = LayerParts(
            attention=Attention(runtime, plan, weights.block.attention, inv_freq),
            moe=Moe(runtime, plan.layer, weights.block.moe, ranks, placement),
            compressor=self._compressor(plan, weights, inv_freq),
            indexer=Indexer(runtime, plan, weights.indexer, inv_freq) if weights.indexer else None,
            engram=self._engram(plan, weights),
        )
        return Layer(runtime, plan, weights.block, parts, boundary=plan.layer == self._boundary)

    def _compressor(self, plan: LayerPlan, weights: LayerWeights, inv_freq: Tensor) -> Compressor | None:
        if weights.compressor is None:
            return None
        return Compressor(self._runtime, plan, weights.compressor, inv_freq)

    def _engram(self, plan: LayerPlan, weights: LayerWeights) -> Engram | None:
        if plan.engram is None or weights.engram is None:
            return None
        return Engram(self._runtime, self._constants[plan.engram], self._pad, weights.engram)


def _all_constants(engram: EngramConfig) -> tuple[HashConstants, ...]:
    ngram, classes = engram.max_ngram_size, engram.compressed_vocab_size
    primes = table_primes(len(engram.layer_ids), ngram - 1, engram.n_heads, engram.vocab_size)
    return tuple(
        hash_constants(layer, own, ngram, classes) for layer, own in zip(engram.layer_ids, primes, strict=True)
    )
