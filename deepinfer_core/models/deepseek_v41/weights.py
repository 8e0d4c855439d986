"""The tensors of a model, and the one description of them: names, shapes and formats as the checkpoint has them.

The description is run twice, over a `TensorSource` that only takes notes and over one that reads (`sources.py`), so
what is expected of a checkpoint and what is loaded cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from deepinfer_core.interfaces.ops import Weight
from deepinfer_core.models.deepseek_v41.config import DeepseekV41Config, EngramConfig
from deepinfer_core.models.deepseek_v41.plan import LayerPlan, Plan

if TYPE_CHECKING:
    from torch import Tensor


class TensorSource(Protocol):
    """Gives the tensors of a checkpoint by name. Sizes are those of the matrix, not of its packed bytes."""

    def norm(self, name: str, *shape: int) -> Tensor:
        """A multiplier, stored as bfloat16 or float32 and kept as float32."""

    def vector(self, name: str, *shape: int) -> Tensor:
        """float32 numbers."""

    def matrix(self, name: str, out_features: int, in_features: int) -> Weight:
        """`name.weight`, bfloat16."""

    def quantised(self, name: str, out_features: int, in_features: int) -> Weight:
        """`name.weight` and `name.scale`: fp8 in blocks of 32 x 32."""

    def experts(self, prefix: str, part: str, count: int, out_features: int, in_features: int) -> Weight:
        """`prefix.0.part` ... as one stack: fp4 in blocks of 32."""

    def table(self, name: str, rows: int, dim: int) -> Weight:
        """`name.weight` and `name.scale`: fp8 with a scale for each 32 numbers of a row; left on disk."""

    def unused(self, name: str, *shape: int) -> None:
        """float32 numbers that must be there and that text does not need."""


@dataclass(frozen=True, slots=True)
class MixWeights:
    """Hyper-connection weights of one sublayer (the op `hc_mixes`)."""

    fn: Tensor
    base: Tensor
    scale: Tensor


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Low-rank queries, one shared key, grouped low-rank output."""

    wq_a: Weight
    wq_b: Weight
    wkv: Weight
    wo_a: Weight
    wo_b: Weight
    q_norm: Tensor
    kv_norm: Tensor
    sink: Tensor


@dataclass(frozen=True, slots=True)
class CompressorWeights:
    """What a KV source makes latents and index keys with."""

    wkv: Weight
    wgate: Weight | None  # only for ratios above 1
    norm: Tensor
    wk: Weight
    k_norm: Tensor


@dataclass(frozen=True, slots=True)
class IndexerWeights:
    """The query side of an index source."""

    wq_b: Weight
    weights_proj: Weight


@dataclass(frozen=True, slots=True)
class MoeWeights:
    """The router, the routed experts and the shared one."""

    gate: Weight
    bias: Tensor
    w1: Weight  # stacks over the experts
    w3: Weight
    w2: Weight
    shared_w1: Weight
    shared_w3: Weight
    shared_w2: Weight


@dataclass(frozen=True, slots=True)
class EngramWeights:
    """A table and the gate of its rows into the streams."""

    table: Weight
    wkv: Weight  # the streams' keys, then the value
    q_weight: Tensor
    k_weight: Tensor


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """A layer of the model or a draft stage."""

    attn_norm: Tensor
    ffn_norm: Tensor
    attn_mix: MixWeights
    ffn_mix: MixWeights
    attention: AttentionWeights
    moe: MoeWeights


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """A layer's block, and what only some layers have."""

    block: BlockWeights
    compressor: CompressorWeights | None
    indexer: IndexerWeights | None
    engram: EngramWeights | None


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """The whole text model but its draft stages."""

    embed: Weight
    head: Weight
    norm: Tensor
    layers: tuple[LayerWeights, ...]


def describe_model(source: TensorSource, config: DeepseekV41Config, plan: Plan) -> ModelWeights:
    """Every tensor of the text model without its draft stages."""
    return ModelWeights(
        embed=source.matrix("embed", config.vocab_size, config.hidden_size),
        head=source.matrix("head", config.vocab_size, config.hidden_size),
        norm=source.norm("norm.weight", config.hidden_size),
        layers=tuple(_layer(source, config, layer) for layer in plan.layers),
    )


def _layer(source: TensorSource, config: DeepseekV41Config, plan: LayerPlan) -> LayerWeights:
    prefix = f"layers.{plan.layer}"
    return LayerWeights(
        block=describe_block(source, config, prefix, config.n_routed_experts),
        compressor=_compressor(source, config, f"{prefix}.attn", plan.ratio) if plan.is_kv_source else None,
        indexer=_indexer(source, config, f"{prefix}.attn.indexer") if plan.is_index_source else None,
        engram=_engram(source, config, f"{prefix}.engram", plan.engram),
    )


def describe_block(source: TensorSource, config: DeepseekV41Config, prefix: str, num_experts: int) -> BlockWeights:
    """What every layer and draft stage has."""
    return BlockWeights(
        attn_norm=source.norm(f"{prefix}.attn_norm.weight", config.hidden_size),
        ffn_norm=source.norm(f"{prefix}.ffn_norm.weight", config.hidden_size),
        attn_mix=_mix(source, config, f"{prefix}.hc_attn"),
        ffn_mix=_mix(source, config, f"{prefix}.hc_ffn"),
        attention=_attention(source, config, f"{prefix}.attn"),
        moe=_moe(source, config, f"{prefix}.ffn", num_experts),
    )


def _mix(source: TensorSource, config: DeepseekV41Config, prefix: str) -> MixWeights:
    streams = config.hc_mult
    outputs = (2 + streams) * streams
    return MixWeights(
        fn=source.vector(f"{prefix}_fn", outputs, streams * config.hidden_size),
        base=source.vector(f"{prefix}_base", outputs),
        scale=source.vector(f"{prefix}_scale", 3),
    )


def _attention(source: TensorSource, config: DeepseekV41Config, prefix: str) -> AttentionWeights:
    heads, groups = config.num_attention_heads, config.o_groups
    output_rank = groups * config.o_lora_rank
    return AttentionWeights(
        wq_a=source.quantised(f"{prefix}.wq_a", config.q_lora_rank, config.hidden_size),
        wq_b=source.quantised(f"{prefix}.wq_b", heads * config.head_dim, config.q_lora_rank),
        wkv=source.quantised(f"{prefix}.wkv", config.head_dim, config.hidden_size),
        wo_a=source.quantised(f"{prefix}.wo_a", output_rank, heads // groups * config.head_dim),
        wo_b=source.quantised(f"{prefix}.wo_b", config.hidden_size, output_rank),
        q_norm=source.norm(f"{prefix}.q_norm.weight", config.q_lora_rank),
        kv_norm=source.norm(f"{prefix}.kv_norm.weight", config.head_dim),
        sink=source.vector(f"{prefix}.attn_sink", heads),
    )


def _compressor(source: TensorSource, config: DeepseekV41Config, prefix: str, ratio: int) -> CompressorWeights:
    assert config.indexer is not None, "a KV source has an indexer"
    compressor, hidden, dim = f"{prefix}.compressor", config.hidden_size, config.head_dim
    return CompressorWeights(
        wkv=source.matrix(f"{compressor}.wkv", dim, hidden),
        wgate=source.matrix(f"{compressor}.wgate", dim, hidden) if ratio > 1 else None,
        norm=source.norm(f"{compressor}.norm.weight", dim),
        wk=source.matrix(f"{prefix}.indexer.wk", config.indexer.head_dim, dim),
        k_norm=source.norm(f"{prefix}.indexer.k_norm.weight", config.indexer.head_dim),
    )


def _indexer(source: TensorSource, config: DeepseekV41Config, prefix: str) -> IndexerWeights:
    assert config.indexer is not None, "an index source has an indexer"
    heads = config.indexer.n_heads
    return IndexerWeights(
        wq_b=source.quantised(f"{prefix}.wq_b", heads * config.indexer.head_dim, config.q_lora_rank),
        weights_proj=source.matrix(f"{prefix}.weights_proj", heads, config.hidden_size),
    )


def _moe(source: TensorSource, config: DeepseekV41Config, prefix: str, num_experts: int) -> MoeWeights:
    hidden, width = config.hidden_size, config.moe_intermediate_size
    source.unused(f"{prefix}.gate.bias_vl", num_experts)
    return MoeWeights(
        gate=source.matrix(f"{prefix}.gate", num_experts, hidden),
        bias=source.vector(f"{prefix}.gate.bias", num_experts),
        w1=source.experts(f"{prefix}.experts", "w1", num_experts, width, hidden),
        w3=source.experts(f"{prefix}.experts", "w3", num_experts, width, hidden),
        w2=source.experts(f"{prefix}.experts", "w2", num_experts, hidden, width),
        shared_w1=source.quantised(f"{prefix}.shared_experts.w1", width, hidden),
        shared_w3=source.quantised(f"{prefix}.shared_experts.w3", width, hidden),
        shared_w2=source.quantised(f"{prefix}.shared_experts.w2", hidden, width),
    )


def _engram(source: TensorSource, config: DeepseekV41Config, prefix: str, index: int | None) -> EngramWeights | None:
    if index is None:
        return None
    engram: EngramConfig | None = config.engram
    assert engram is not None, "a layer with an n-gram table has an engram configuration"
    streams, hidden = config.hc_mult, config.hidden_size
    return EngramWeights(
        table=source.table(f"{prefix}.embed", engram.num_embeddings[index], engram.head_dim),
        wkv=source.quantised(f"{prefix}.wkv", (streams + 1) * hidden, engram.row_dim),
        q_weight=source.norm(f"{prefix}.q_weight", streams, hidden),
        k_weight=source.norm(f"{prefix}.k_weight", streams, hidden),
    )
