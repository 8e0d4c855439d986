"""The numbers of a V4.1 text model, under their config.json names, and what each layer reads from which other layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseConfig:
    """The part of `text_config` that the arithmetic needs. Lists are tuples; `rope_scaling` may be None."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    moe_intermediate_size: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    swiglu_limit: float
    rms_norm_eps: float
    rope_theta: float
    compress_rope_theta: float
    rope_scaling: Mapping[str, Any] | None
    n_routed_experts: int
    num_experts_per_tok: int
    routed_scaling_factor: float
    sliding_window: int
    compress_ratios: tuple[int, ...]
    kv_source_layer_ids: tuple[int, ...]
    index_source_layer_ids: tuple[int, ...]
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    candidate_source_layer_id: int
    candidate_topk_blocks: int
    candidate_block_size: int
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    engram_layer_ids: tuple[int, ...]
    engram_max_ngram_size: int
    engram_vocab_size: int
    engram_n_heads: int
    engram_head_dim: int
    engram_pad_token_id: int
    engram_compressed_vocab_size: int
    num_nextn_predict_layers: int
    dspark_block_size: int
    dspark_noise_token_id: int
    dspark_target_layer_ids: tuple[int, ...]
    dspark_markov_rank: int
    dspark_n_routed_experts: int
    dspark_num_experts_per_tok: int

    @classmethod
    def from_text_config(cls, values: Mapping[str, Any]) -> DenseConfig:
        """Take the known fields of a `text_config`; a missing one is a TypeError that names it."""
        known = {f.name for f in fields(cls)} & values.keys()
        return cls(**{name: tuple(v) if isinstance(v := values[name], list) else v for name in known})

    def ratio(self, layer: int) -> int:
        """Native tokens a compressed entry covers at this layer; 0 where it sees its window only."""
        return self.compress_ratios[layer] if layer < self.num_hidden_layers else 0

    @property
    def last_encoder_layer(self) -> int:
        """The last KV source, after which bounded rows are dropped; the last layer when there is no source."""
        return max(self.kv_source_layer_ids, default=self.num_hidden_layers - 1)

    def restricted(self, layer: int) -> bool:
        """Whether this index source chooses among the candidate blocks that an earlier one marked."""
        return 0 <= self.candidate_source_layer_id < layer
