"""The typed configuration of a DeepSeek-V4.1 checkpoint. Field names are those of config.json.

It is read and checked in `parse.py`; what follows from it for each layer is derived in `plan.py`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class YarnConfig:
    """Stretching of the rotary frequencies in layers with compressed entries."""

    factor: float
    beta_fast: float
    beta_slow: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class IndexerConfig:
    """The scorer that selects compressed entries."""

    n_heads: int
    head_dim: int
    topk: int


@dataclass(frozen=True, slots=True)
class CandidateConfig:
    """The first level of the two-level selection: blocks of entries that later index sources are kept to."""

    source_layer_id: int
    topk_blocks: int
    block_size: int  # entries


@dataclass(frozen=True, slots=True)
class EngramConfig:
    """The n-gram memory: one table for each of `layer_ids`."""

    layer_ids: tuple[int, ...]
    num_embeddings: tuple[int, ...]  # rows of each table
    max_ngram_size: int
    n_heads: int  # hashes of each n-gram length
    head_dim: int
    vocab_size: int  # where the search for prime moduli starts
    pad_token_id: int
    compressed_vocab_size: int  # classes that token ids fall into

    @property
    def row_dim(self) -> int:
        """Numbers looked up for one token."""
        return (self.max_ngram_size - 1) * self.n_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """The DSpark draft stages."""

    num_stages: int
    block_size: int  # drafts a step
    noise_token_id: int
    markov_rank: int
    target_layer_ids: tuple[int, ...]  # layers whose input streams the stages read
    n_routed_experts: int
    num_experts_per_tok: int


@dataclass(frozen=True, slots=True)
class DeepseekV41Config:
    """Everything the text model is built from. Made by `parse_config`, which checks that the parts fit together."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    max_position_embeddings: int
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    image_token_id: int | None
    rms_norm_eps: float

    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    sliding_window: int
    rope_theta: float
    compress_rope_theta: float
    yarn: YarnConfig | None  # None only without compressed entries
    compress_ratios: tuple[int, ...]  # one for each layer; 0: sliding window only
    kv_source_layer_ids: tuple[int, ...]
    index_source_layer_ids: tuple[int, ...]
    indexer: IndexerConfig | None  # None only without compressed entries
    candidates: CandidateConfig | None

    moe_intermediate_size: int
    n_routed_experts: int
    num_experts_per_tok: int
    routed_scaling_factor: float
    swiglu_limit: float

    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float

    engram: EngramConfig | None
    draft: DraftConfig | None

    @property
    def max_drafts(self) -> int:
        """Drafts a step that the checkpoint's stages can make."""
        return self.draft.block_size if self.draft else 0

    @property
    def speculative_rows(self) -> int:
        """Ring rows beyond what is looked at, so that drafts of two steps in flight overwrite nothing."""
        return 2 * (self.max_drafts + 1)

    @property
    def window_rows(self) -> int:
        """Rows of a sliding-window ring."""
        return self.sliding_window + self.speculative_rows

    @property
    def history_rows(self) -> int:
        """Tokens before a row's own that its n-gram hashes look at."""
        return self.engram.max_ngram_size - 1 if self.engram else 0
