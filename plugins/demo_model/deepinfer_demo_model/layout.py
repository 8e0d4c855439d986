"""Which tensors a V4.1 checkpoint holds: names, shapes, stored formats, and how a random one is spread.

The spreads keep the streams of a random model near unit size and its logits lively, whatever the shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from deepinfer_demo_model.spec import ModelSpec


class Stored(Enum):
    """How a tensor is stored; all but BF16 and F32 have a `.scale` tensor beside their `.weight`."""

    FP8_TILES = "fp8_tiles"
    FP8_ROWS = "fp8_rows"
    FP4 = "fp4"
    BF16 = "bf16"
    F32 = "f32"


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """One tensor, drawn from a normal distribution."""

    name: str
    shape: tuple[int, ...]
    stored: Stored
    mean: float
    deviation: float


def _matrix(name: str, outputs: int, inputs: int, stored: Stored, gain: float = 1.5) -> TensorPlan:
    return TensorPlan(f"{name}.weight", (outputs, inputs), stored, 0.0, gain * inputs**-0.5)


def _norm(name: str, size: int, mean: float) -> TensorPlan:
    return TensorPlan(f"{name}.weight", (size,), Stored.BF16, mean, 0.1 * mean)


def checkpoint_tensors(spec: ModelSpec) -> Iterator[TensorPlan]:
    """Every tensor of the text model and its draft stages."""
    yield TensorPlan("embed.weight", (spec.vocab_size, spec.hidden_size), Stored.BF16, 0.0, 0.5)
    yield _matrix("head", spec.vocab_size, spec.hidden_size, Stored.BF16, gain=4.0)
    yield _norm("norm", spec.hidden_size, 1.0)
    for layer in range(spec.num_hidden_layers):
        yield from _block(spec, f"layers.{layer}.", spec.n_routed_experts)
        yield from _sources(spec, layer)
    for layer, rows in zip(spec.engram_layer_ids, spec.engram_rows(), strict=True):
        yield from _engram(spec, f"layers.{layer}.engram.", rows)
    for stage in range(spec.num_nextn_predict_layers):
        yield from _block(spec, f"mtp.{stage}.", spec.dspark_n_routed_experts)
    if spec.num_nextn_predict_layers:
        yield from _draft_ends(spec, f"mtp.{spec.num_nextn_predict_layers - 1}.")


def _block(spec: ModelSpec, prefix: str, experts: int) -> Iterator[TensorPlan]:
    """What backbone layers and draft stages have in common."""
    yield from _attention(spec, f"{prefix}attn.")
    yield _norm(f"{prefix}attn_norm", spec.hidden_size, 0.5)
    yield _norm(f"{prefix}ffn_norm", spec.hidden_size, 0.5)
    mixes = (2 + spec.hc_mult) * spec.hc_mult
    for part in ("attn", "ffn"):
        yield TensorPlan(f"{prefix}hc_{part}_fn", (mixes, spec.hc_mult * spec.hidden_size), Stored.F32, 0.0, 0.05)
        yield TensorPlan(f"{prefix}hc_{part}_base", (mixes,), Stored.F32, 0.0, 0.5)
        yield TensorPlan(f"{prefix}hc_{part}_scale", (3,), Stored.F32, 1.0, 0.1)
    yield from _moe(spec, f"{prefix}ffn.", experts)


def _attention(spec: ModelSpec, prefix: str) -> Iterator[TensorPlan]:
    heads, hidden, low = spec.num_attention_heads, spec.hidden_size, spec.q_lora_rank
    yield _matrix(f"{prefix}wq_a", low, hidden, Stored.FP8_TILES)
    yield _norm(f"{prefix}q_norm", low, 1.0)
    yield _matrix(f"{prefix}wq_b", heads * spec.head_dim, low, Stored.FP8_TILES, gain=1.0)
    yield _matrix(f"{prefix}wkv", spec.head_dim, hidden, Stored.FP8_TILES, gain=1.8)
    yield _norm(f"{prefix}kv_norm", spec.head_dim, 0.8)
    yield TensorPlan(f"{prefix}attn_sink", (heads,), Stored.F32, 0.0, 0.5)
    group = heads * spec.head_dim // spec.o_groups
    yield _matrix(f"{prefix}wo_a", spec.o_groups * spec.o_lora_rank, group, Stored.FP8_TILES)
    yield _matrix(f"{prefix}wo_b", hidden, spec.o_groups * spec.o_lora_rank, Stored.FP8_TILES, gain=1.9)


def _sources(spec: ModelSpec, layer: int) -> Iterator[TensorPlan]:
    """The compressor of a KV source, and the parts of the indexer that a KV source or an index source has."""
    prefix, hidden = f"layers.{layer}.attn.", spec.hidden_size
    if layer in spec.kv_source_layer_ids:
        yield _matrix(f"{prefix}compressor.wkv", spec.head_dim, hidden, Stored.BF16)
        yield _norm(f"{prefix}compressor.norm", spec.head_dim, 0.8)
        if spec.ratio(layer) > 1:
            yield _matrix(f"{prefix}compressor.wgate", spec.head_dim, hidden, Stored.BF16)
        yield _matrix(f"{prefix}indexer.wk", spec.index_head_dim, spec.head_dim, Stored.BF16)
        yield _norm(f"{prefix}indexer.k_norm", spec.index_head_dim, 1.0)
    if layer in spec.index_source_layer_ids:
        queries = spec.index_n_heads * spec.index_head_dim
        yield _matrix(f"{prefix}indexer.wq_b", queries, spec.q_lora_rank, Stored.FP8_TILES)
        yield _matrix(f"{prefix}indexer.weights_proj", spec.index_n_heads, hidden, Stored.BF16)


def _moe(spec: ModelSpec, prefix: str, experts: int) -> Iterator[TensorPlan]:
    hidden, inner = spec.hidden_size, spec.moe_intermediate_size
    yield _matrix(f"{prefix}gate", experts, hidden, Stored.BF16, gain=2.0)
    yield TensorPlan(f"{prefix}gate.bias", (experts,), Stored.F32, 0.0, 0.1)
    yield TensorPlan(f"{prefix}gate.bias_vl", (experts,), Stored.F32, 0.0, 0.1)
    units = [(f"{prefix}experts.{expert}.", Stored.FP4) for expert in range(experts)]
    for unit, stored in [*units, (f"{prefix}shared_experts.", Stored.FP8_TILES)]:
        yield _matrix(f"{unit}w1", inner, hidden, stored)
        yield _matrix(f"{unit}w3", inner, hidden, stored)
        yield _matrix(f"{unit}w2", hidden, inner, stored)


def _engram(spec: ModelSpec, prefix: str, rows: int) -> Iterator[TensorPlan]:
    found = (spec.engram_max_ngram_size - 1) * spec.engram_n_heads * spec.engram_head_dim
    shape = (spec.hc_mult, spec.hidden_size)
    yield TensorPlan(f"{prefix}embed.weight", (rows, spec.engram_head_dim), Stored.FP8_ROWS, 0.0, 1.0)
    yield _matrix(f"{prefix}wkv", (spec.hc_mult + 1) * spec.hidden_size, found, Stored.FP8_TILES)
    yield TensorPlan(f"{prefix}q_weight", shape, Stored.BF16, 1.0, 0.1)
    yield TensorPlan(f"{prefix}k_weight", shape, Stored.BF16, 1.0, 0.1)


def _draft_ends(spec: ModelSpec, last: str) -> Iterator[TensorPlan]:
    """The first stage's projection of the taps, and the last stage's heads."""
    hidden, rank = spec.hidden_size, spec.dspark_markov_rank
    yield _matrix("mtp.0.main_proj", hidden, len(spec.dspark_target_layer_ids) * hidden, Stored.FP8_TILES)
    yield _norm("mtp.0.main_norm", hidden, 1.0)
    yield _norm(f"{last}norm", hidden, 1.0)
    yield _matrix(f"{last}markov_head.embed", spec.vocab_size, rank, Stored.BF16)
    yield _matrix(f"{last}markov_head.head", spec.vocab_size, rank, Stored.BF16)
    yield _matrix(f"{last}confidence_head.proj", 1, hidden + rank, Stored.BF16)
