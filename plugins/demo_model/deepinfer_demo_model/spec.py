"""The shape of a V4.1 model, as its config.json tells it, and the shapes that this package makes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from deepinfer_core.models.deepseek_v41.engram_tables import table_rows

BOS, EOS, PAD, NOISE, IMAGE = 0, 1, 2, 3, 4  # token ids; `tokenizer_file.SPECIAL_TOKENS` gives their spellings
TILE = 32  # side of a weight tile with one scale, and of a block of activations


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """How rotary frequencies are stretched in layers with compressed entries."""

    original_max_position_embeddings: int
    factor: float = 16
    beta_fast: float = 32
    beta_slow: float = 1
    rope_type: str = "yarn"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A `text_config`, field by field under its own names. Draft stages count into `compress_ratios` as zeros."""

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
    n_routed_experts: int
    num_experts_per_tok: int
    sliding_window: int
    compress_ratios: tuple[int, ...]
    kv_source_layer_ids: tuple[int, ...]
    index_source_layer_ids: tuple[int, ...]
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    candidate_source_layer_id: int = -1
    candidate_topk_blocks: int = 1
    candidate_block_size: int = 1
    hc_mult: int = 4
    hc_sinkhorn_iters: int = 20
    hc_eps: float = 1e-6
    engram_layer_ids: tuple[int, ...] = ()
    engram_max_ngram_size: int = 4
    engram_vocab_size: int = 100
    engram_n_heads: int = 2
    engram_head_dim: int = 32
    engram_pad_token_id: int = PAD
    engram_compressed_vocab_size: int = 1
    num_nextn_predict_layers: int = 0
    dspark_block_size: int = 5
    dspark_noise_token_id: int = NOISE
    dspark_target_layer_ids: tuple[int, ...] = ()
    dspark_markov_rank: int = 32
    dspark_n_routed_experts: int = 4
    dspark_num_experts_per_tok: int = 2
    max_position_embeddings: int = 4096
    rope_theta: float = 10000
    compress_rope_theta: float = 160000
    rope_scaling: YarnScaling | None = YarnScaling(256)
    routed_scaling_factor: float = 1.5
    swiglu_limit: float = 10.0
    rms_norm_eps: float = 1e-20
    n_shared_experts: int = 1
    num_key_value_heads: int = 1
    hidden_act: str = "silu"
    scoring_func: str = "sqrtsoftplus"
    topk_method: str = "noaux_tc"
    norm_topk_prob: bool = True
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    attention_dropout: float = 0.0
    model_type: str = "deepseek_v41_text"

    def ratio(self, layer: int) -> int:
        """Native tokens that a compressed entry covers at this layer; 0 where it sees its window only."""
        return self.compress_ratios[layer]

    def engram_rows(self) -> tuple[int, ...]:
        """Table rows of each Engram layer."""
        lengths = self.engram_max_ngram_size - 1
        return table_rows(len(self.engram_layer_ids), lengths, self.engram_n_heads, self.engram_vocab_size)

    def config(self) -> dict[str, Any]:
        """The whole config.json."""
        return {
            "architectures": ["DeepseekV41ForCausalLM"],
            "model_type": "deepseek_v41",
            "dtype": "bfloat16",
            "bos_token_id": BOS,
            "eos_token_id": EOS,
            "pad_token_id": PAD,
            "image_token_id": IMAGE,
            "quantization_config": {
                "quant_method": "fp8",
                "activation_scheme": "dynamic",
                "weight_block_size": [TILE, TILE],
                "scale_fmt": "ue8m0",
                "expert_dtype": "fp4",
            },
            "text_config": asdict(self) | {"engram_num_embeddings": self.engram_rows()},
        }


# About 50 million parameters, four fifths of them in experts, for measuring speed.
BENCH_50M = ModelSpec(
    vocab_size=4096,
    hidden_size=384,
    num_hidden_layers=12,
    moe_intermediate_size=192,
    num_attention_heads=6,
    head_dim=64,
    qk_rope_head_dim=32,
    q_lora_rank=192,
    o_lora_rank=128,
    o_groups=2,
    n_routed_experts=12,
    num_experts_per_tok=3,
    sliding_window=128,
    compress_ratios=(0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0, 0),
    kv_source_layer_ids=(2, 4, 6),
    index_source_layer_ids=(2, 4, 6, 9),
    index_n_heads=8,
    index_head_dim=32,
    index_topk=64,
    candidate_source_layer_id=6,
    candidate_topk_blocks=32,
    candidate_block_size=8,
    engram_layer_ids=(1, 4),
    engram_vocab_size=4000,
    engram_n_heads=4,
    num_nextn_predict_layers=3,
    dspark_target_layer_ids=(9, 10, 11),
    dspark_markov_rank=64,
)
