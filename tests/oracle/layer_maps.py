"""Small V4.1 shapes unlike the one with the goldens: other layer maps, head counts, ratios, windows and constants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deepinfer_demo_model.checkpoint import write_random_checkpoint
from deepinfer_demo_model.spec import ModelSpec, YarnScaling

BASE = ModelSpec(
    vocab_size=96,
    hidden_size=64,
    num_hidden_layers=5,
    moe_intermediate_size=32,
    num_attention_heads=4,
    head_dim=32,
    qk_rope_head_dim=16,
    q_lora_rank=32,
    o_lora_rank=16,
    o_groups=2,
    n_routed_experts=4,
    num_experts_per_tok=2,
    sliding_window=8,
    compress_ratios=(0, 2, 2, 1, 1),
    kv_source_layer_ids=(1, 3),
    index_source_layer_ids=(1, 3),
    index_n_heads=8,
    index_head_dim=32,
    index_topk=6,
    engram_compressed_vocab_size=48,
    engram_vocab_size=30,
    max_position_embeddings=1024,
    rope_scaling=YarnScaling(64),
)

DRAFTS = {
    "num_nextn_predict_layers": 2,
    "dspark_target_layer_ids": (3, 4),
    "compress_ratios": (0, 2, 2, 1, 1, 0, 0),
    "dspark_block_size": 3,
}

SPECS = {
    "no engram, no drafts, no candidates": BASE,
    "window only": replace(BASE, compress_ratios=(0,) * 5, kv_source_layer_ids=(), index_source_layer_ids=()),
    "one source of ratio 2 is the last": replace(
        BASE, compress_ratios=(0, 2, 2, 2, 2), kv_source_layer_ids=(1,), index_source_layer_ids=(1, 3)
    ),
    "ratio 4, then 8, then 1": replace(
        BASE, compress_ratios=(4, 4, 8, 8, 1), kv_source_layer_ids=(0, 2, 4), index_source_layer_ids=(0, 2, 4)
    ),
    "window-only layers between and behind": replace(
        BASE, compress_ratios=(2, 0, 2, 1, 0), kv_source_layer_ids=(0, 3), index_source_layer_ids=(0, 2, 3)
    ),
    "the last layer is the last source": replace(
        BASE, compress_ratios=(0, 0, 2, 2, 1), kv_source_layer_ids=(2, 4), index_source_layer_ids=(2, 4)
    ),
    "layer 0 is the only source, all layers select": replace(
        BASE,
        compress_ratios=(1,) * 5,
        kv_source_layer_ids=(0,),
        index_source_layer_ids=(0, 1, 2, 3, 4),
        candidate_source_layer_id=0,
        candidate_topk_blocks=3,
        candidate_block_size=3,
    ),
    "candidates from a layer that is no KV source": replace(
        BASE,
        compress_ratios=(0, 1, 1, 1, 1),
        kv_source_layer_ids=(1,),
        index_source_layer_ids=(1, 2, 3, 4),
        candidate_source_layer_id=2,
        candidate_topk_blocks=2,
        candidate_block_size=4,
    ),
    "engram in both halves": replace(BASE, engram_layer_ids=(0, 4), **DRAFTS),
    "engram at the last source": replace(
        BASE, engram_layer_ids=(3,), engram_max_ngram_size=2, engram_n_heads=3, engram_head_dim=64
    ),
    "odd sizes": replace(
        BASE,
        vocab_size=101,
        hidden_size=96,
        num_attention_heads=6,
        head_dim=96,
        qk_rope_head_dim=32,
        q_lora_rank=64,
        o_lora_rank=32,
        o_groups=3,
        moe_intermediate_size=160,
        n_routed_experts=7,
        num_experts_per_tok=3,
        sliding_window=5,
        index_n_heads=3,
        index_head_dim=64,
        index_topk=3,
        hc_mult=3,
        engram_layer_ids=(2,),
        engram_compressed_vocab_size=51,
    ),
    "two streams, one entry, one head, every expert": replace(
        BASE,
        hc_mult=2,
        index_topk=1,
        index_n_heads=1,
        num_attention_heads=1,
        o_groups=1,
        o_lora_rank=32,
        num_experts_per_tok=4,
        sliding_window=1,
    ),
    "one stream, one expert, more room than tokens": replace(
        BASE, hc_mult=1, n_routed_experts=1, num_experts_per_tok=1, sliding_window=300, index_topk=500
    ),
    "other constants": replace(
        BASE,
        swiglu_limit=0.5,
        routed_scaling_factor=2.5,
        rms_norm_eps=1e-3,
        hc_eps=1e-2,
        hc_sinkhorn_iters=2,
        rope_theta=500,
        compress_rope_theta=2000,
        rope_scaling=YarnScaling(512, factor=4, beta_fast=8, beta_slow=2),
        qk_rope_head_dim=32,
        engram_layer_ids=(1,),
        engram_pad_token_id=9,
    ),
}


def write_spec(name: str, folder: Path) -> None:
    """Write the checkpoint of `SPECS[name]`, over three shards and with prefixed names, as some releases have them."""
    spec = SPECS[name]
    classes = [token * spec.engram_compressed_vocab_size // spec.vocab_size for token in range(spec.vocab_size)]
    write_random_checkpoint(folder, spec, classes, shards=3, prefix="model.")
