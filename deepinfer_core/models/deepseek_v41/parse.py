"""config.json -> `DeepseekV41Config`, and the refusal of every value that this engine does not run.

Whether the tensors agree with it is checked when the checkpoint is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepinfer_core.loading.faults import Faults
from deepinfer_core.models.deepseek_v41.config import (
    CandidateConfig,
    DeepseekV41Config,
    DraftConfig,
    EngramConfig,
    IndexerConfig,
    YarnConfig,
)
from deepinfer_core.models.deepseek_v41.engram_tables import table_rows
from deepinfer_core.models.deepseek_v41.fields import Fields
from deepinfer_core.models.deepseek_v41.plan import layer_faults

BLOCK = 32  # numbers that share a scale, in weights and in quantised activations
# Far above any release: a damaged count must be refused, not run as a loop over tensors that are not there.
MAX_EXPERTS, MAX_STAGES, MAX_STREAMS, MAX_ITERATIONS = 4096, 64, 64, 1000


def parse_config(config: Mapping[str, Any]) -> DeepseekV41Config:
    """Read a config.json, nested under `text_config` or flat. Raises `CheckpointError` listing every fault."""
    text = config.get("text_config")
    values = {**(text if isinstance(text, Mapping) else {}), **config}
    faults = Faults("config.json does not describe a DeepSeek-V4.1 model that this engine runs")
    fields = Fields(values, faults)
    _check_fixed(fields)
    _check_quantisation(fields)
    parsed = _parse(fields)
    _check_sizes(parsed, fields)
    fields.report_missing()
    faults.raise_any("Correct config.json, or use a checkpoint in the released DeepSeek-V4.1 format.")
    return parsed


def _parse(fields: Fields) -> DeepseekV41Config:
    layers = fields.integer("num_hidden_layers")
    vocab = fields.integer("vocab_size", low=2)
    last_layer = None if "num_hidden_layers" in fields.bad else layers - 1
    last_token = None if "vocab_size" in fields.bad else vocab - 1
    ratios, kv_sources, index_sources, candidate_layer = _parse_maps(fields, layers, last_layer)
    compressed = any(ratios)
    return DeepseekV41Config(
        vocab_size=vocab,
        hidden_size=fields.integer("hidden_size", low=BLOCK, multiple=BLOCK),
        num_hidden_layers=layers,
        max_position_embeddings=fields.integer("max_position_embeddings"),
        bos_token_id=fields.optional_integer("bos_token_id", high=last_token),
        eos_token_ids=fields.one_or_more("eos_token_id", high=last_token),
        image_token_id=fields.optional_integer("image_token_id", high=last_token),
        rms_norm_eps=fields.number("rms_norm_eps"),
        num_attention_heads=fields.integer("num_attention_heads"),
        head_dim=fields.integer("head_dim", low=BLOCK, multiple=BLOCK),
        qk_rope_head_dim=fields.integer("qk_rope_head_dim", low=2, multiple=2),
        q_lora_rank=fields.integer("q_lora_rank", low=BLOCK, multiple=BLOCK),
        o_lora_rank=fields.integer("o_lora_rank"),
        o_groups=fields.integer("o_groups"),
        sliding_window=fields.integer("sliding_window"),
        rope_theta=fields.number("rope_theta", above=1),
        compress_rope_theta=fields.number("compress_rope_theta", above=1) if compressed else 0.0,
        yarn=_parse_yarn(fields) if compressed else None,
        compress_ratios=ratios,
        kv_source_layer_ids=kv_sources,
        index_source_layer_ids=index_sources,
        indexer=_parse_indexer(fields) if compressed else None,
        candidates=_parse_candidates(fields, candidate_layer) if candidate_layer >= 0 else None,
        moe_intermediate_size=fields.integer("moe_intermediate_size", low=BLOCK, multiple=BLOCK),
        n_routed_experts=fields.integer("n_routed_experts", high=MAX_EXPERTS),
        num_experts_per_tok=fields.integer("num_experts_per_tok"),
        routed_scaling_factor=fields.number("routed_scaling_factor"),
        swiglu_limit=fields.number("swiglu_limit"),
        hc_mult=fields.integer("hc_mult", high=MAX_STREAMS),
        hc_sinkhorn_iters=fields.integer("hc_sinkhorn_iters", high=MAX_ITERATIONS),
        hc_eps=fields.number("hc_eps"),
        engram=_parse_engram(fields, last_layer, last_token),
        draft=_parse_draft(fields, last_layer, last_token),
    )


def _parse_maps(
    fields: Fields, layers: int, last_layer: int | None
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    """Ratios of the layers, KV sources, index sources, candidate source (-1: none), checked against each other."""
    ratios = fields.integers("compress_ratios", low=0, high=None)
    kv_sources = fields.ascending("kv_source_layer_ids", high=last_layer)
    index_sources = fields.ascending("index_source_layer_ids", high=last_layer)
    candidate = fields.integer("candidate_source_layer_id", low=-1, high=last_layer)
    names = {
        "num_hidden_layers",
        "compress_ratios",
        "kv_source_layer_ids",
        "index_source_layer_ids",
        "candidate_source_layer_id",
    }
    if not fields.bad & names:
        for name, text in layer_faults(layers, ratios, kv_sources, index_sources, candidate):
            fields.fault(name, text)
    fields.equals("index_k_source_layer_ids", list(kv_sources), required=False)
    return ratios[:layers], kv_sources, index_sources, candidate


def _parse_yarn(fields: Fields) -> YarnConfig | None:
    section = fields.section("rope_scaling")
    if section is None:
        return None
    section.equals("rope_type" if section.has("rope_type") or not section.has("type") else "type", "yarn")
    yarn = YarnConfig(
        factor=section.number("factor"),
        beta_fast=section.number("beta_fast"),
        beta_slow=section.number("beta_slow"),
        original_max_position_embeddings=section.integer("original_max_position_embeddings"),
    )
    section.report_missing()
    return yarn


def _parse_indexer(fields: Fields) -> IndexerConfig:
    return IndexerConfig(
        n_heads=fields.integer("index_n_heads"),
        head_dim=fields.integer("index_head_dim", low=BLOCK, multiple=BLOCK),
        topk=fields.integer("index_topk"),
    )


def _parse_candidates(fields: Fields, layer: int) -> CandidateConfig:
    return CandidateConfig(
        source_layer_id=layer,
        topk_blocks=fields.integer("candidate_topk_blocks"),
        block_size=fields.integer("candidate_block_size"),
    )


def _parse_engram(fields: Fields, last_layer: int | None, last_token: int | None) -> EngramConfig | None:
    layer_ids = fields.ascending("engram_layer_ids", high=last_layer)
    if not layer_ids:
        return None
    engram = EngramConfig(
        layer_ids=layer_ids,
        num_embeddings=fields.integers("engram_num_embeddings", low=1, high=2**31 - 1),
        max_ngram_size=fields.integer("engram_max_ngram_size", low=2, high=16),
        n_heads=fields.integer("engram_n_heads", high=1024),
        head_dim=fields.integer("engram_head_dim", low=BLOCK, multiple=BLOCK),
        vocab_size=fields.integer("engram_vocab_size", low=2, high=2**31 - 1),
        pad_token_id=fields.integer("engram_pad_token_id", low=0, high=last_token),
        compressed_vocab_size=fields.integer("engram_compressed_vocab_size"),
    )
    if not any(name.startswith("engram_") for name in fields.bad):
        rows = table_rows(len(layer_ids), engram.max_ngram_size - 1, engram.n_heads, engram.vocab_size)
        if engram.num_embeddings != rows:
            fields.fault(
                "engram_num_embeddings",
                f"engram_num_embeddings = {list(engram.num_embeddings)} is not what the other engram fields give: "
                f"the sums of the prime moduli of layers {list(layer_ids)} are {list(rows)}",
            )
    return engram


def _parse_draft(fields: Fields, last_layer: int | None, last_token: int | None) -> DraftConfig | None:
    stages = fields.integer("num_nextn_predict_layers", low=0, high=MAX_STAGES)
    if not stages:
        return None
    draft = DraftConfig(
        num_stages=stages,
        block_size=fields.integer("dspark_block_size"),
        noise_token_id=fields.integer("dspark_noise_token_id", low=0, high=last_token),
        markov_rank=fields.integer("dspark_markov_rank"),
        target_layer_ids=fields.ascending("dspark_target_layer_ids", high=last_layer),
        n_routed_experts=fields.integer("dspark_n_routed_experts", high=MAX_EXPERTS),
        num_experts_per_tok=fields.integer("dspark_num_experts_per_tok"),
    )
    if not draft.target_layer_ids and "dspark_target_layer_ids" not in fields.bad:
        fields.fault(
            "dspark_target_layer_ids", "dspark_target_layer_ids is empty: the draft stages need a layer to read"
        )
    if draft.num_experts_per_tok > draft.n_routed_experts:
        fields.fault("dspark_num_experts_per_tok", _too_many("dspark_num_experts_per_tok", "dspark_n_routed_experts"))
    return draft


def _check_fixed(fields: Fields) -> None:
    """Switches of the format that have one supported value."""
    fields.equals("hidden_act", "silu")
    fields.equals("scoring_func", "sqrtsoftplus")
    fields.equals("topk_method", "noaux_tc")
    fields.equals("norm_topk_prob", True)
    fields.equals("n_shared_experts", 1)
    fields.equals("num_key_value_heads", 1)
    fields.equals("tie_word_embeddings", False)
    fields.equals("attention_bias", False, required=False)
    fields.equals("gate_temp", 1, required=False)
    fields.equals("hc_shifted", True, required=False)
    fields.equals("use_fp4_sparse_kv", True, required=False)
    fields.equals("dspark_target_attn_input", True, required=False)


def _check_quantisation(fields: Fields) -> None:
    section = fields.section("quantization_config")
    if section is not None:
        section.equals("quant_method", "fp8")
        section.equals("activation_scheme", "dynamic")
        section.equals("weight_block_size", [BLOCK, BLOCK])
        section.equals("scale_fmt", "ue8m0")
        section.equals("expert_dtype", "fp4")
        section.report_missing()


def _check_sizes(config: DeepseekV41Config, fields: Fields) -> None:
    """Sizes that must fit each other. A field that is already known to be wrong is not blamed twice."""
    rope, heads, groups = config.qk_rope_head_dim, config.num_attention_heads, config.o_groups
    index_dim = config.indexer.head_dim if config.indexer else rope
    checks = (
        ("qk_rope_head_dim", "head_dim", rope <= config.head_dim, f"{rope} rotated of {config.head_dim} numbers"),
        ("qk_rope_head_dim", "index_head_dim", rope <= index_dim, f"{rope} rotated of {index_dim} numbers"),
        ("num_attention_heads", "o_groups", heads % groups == 0, f"{groups} groups of {heads} heads"),
        ("o_lora_rank", "o_groups", config.o_lora_rank * groups % BLOCK == 0, f"their product needs blocks of {BLOCK}"),
    )
    for first, second, fine, text in checks:
        if not fine and not fields.bad & {first, second}:
            fields.fault(first, f"{first} and {second} do not fit: {text}")
    if config.num_experts_per_tok > config.n_routed_experts and "n_routed_experts" not in fields.bad:
        fields.fault("num_experts_per_tok", _too_many("num_experts_per_tok", "n_routed_experts"))


def _too_many(chosen: str, available: str) -> str:
    return f"{chosen} may not exceed {available}"
