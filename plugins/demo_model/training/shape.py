"""The shapes of the trained model and of its tiny twin for tests, and how long each is trained."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deepinfer_demo_model.spec import ModelSpec

# Nine layers, every part of the architecture: a window-only layer, ratio-2 sources at 1 and 3, the ratio-1 source at 5
# that ends the encoder half, four index sources (the last restricted to the candidate blocks of layer 5), two Engram
# layers, three draft stages. Candidate blocks hold 512 entries, so they bind from 513 tokens on.
DEMO = ModelSpec(
    vocab_size=8192,
    hidden_size=384,
    num_hidden_layers=9,
    moe_intermediate_size=128,
    num_attention_heads=6,
    head_dim=64,
    qk_rope_head_dim=32,
    q_lora_rank=192,
    o_lora_rank=128,
    o_groups=2,
    n_routed_experts=16,
    num_experts_per_tok=4,
    sliding_window=128,
    compress_ratios=(0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0),
    kv_source_layer_ids=(1, 3, 5),
    index_source_layer_ids=(1, 3, 5, 7),
    index_n_heads=8,
    index_head_dim=32,
    index_topk=64,
    candidate_source_layer_id=5,
    candidate_topk_blocks=64,
    candidate_block_size=8,
    engram_layer_ids=(1, 3),
    engram_vocab_size=4000,
    engram_n_heads=2,
    engram_head_dim=32,
    num_nextn_predict_layers=3,
    dspark_target_layer_ids=(6, 7, 8),
    dspark_markov_rank=32,
    dspark_n_routed_experts=4,
    dspark_num_experts_per_tok=2,
    max_position_embeddings=4096,
)

TINY = replace(
    DEMO,
    vocab_size=400,
    hidden_size=64,
    num_hidden_layers=5,
    moe_intermediate_size=32,
    num_attention_heads=2,
    head_dim=32,
    qk_rope_head_dim=16,
    q_lora_rank=32,
    o_lora_rank=32,
    n_routed_experts=4,
    num_experts_per_tok=2,
    sliding_window=16,
    compress_ratios=(0, 2, 1, 1, 1, 0, 0, 0),
    kv_source_layer_ids=(1, 2),
    index_source_layer_ids=(1, 2, 4),
    index_topk=8,
    candidate_source_layer_id=2,
    candidate_topk_blocks=3,
    candidate_block_size=4,
    engram_layer_ids=(1,),
    engram_vocab_size=100,
    dspark_target_layer_ids=(2, 3, 4),
    dspark_markov_rank=8,
    max_position_embeddings=512,
)


@dataclass(frozen=True, slots=True)
class Phase:
    """Part of the backbone's training at one window length. `share` is its part of all training tokens."""

    share: float
    length: int  # tokens of a window
    batch: int  # windows of a step


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What decides a training run, but the text."""

    spec: ModelSpec
    documents: int | None = None  # of each file that are read, from its beginning; None: all
    tokens: int  # that the backbone sees
    phases: tuple[Phase, ...]
    matrix_rate: float  # peak learning rates of the two optimisers
    other_rate: float
    warmup_steps: int = 100
    decay_share: float = 0.4  # last part of the steps, in which the rates fall to zero
    weight_decay: float = 0.1
    index_every: int = 4  # steps from one training step of the indexers to the next
    bias_rate: float = 0.002  # of the experts' balance biases, a step
    draft_steps: int = 7000
    draft_rate: float = 1.5e-3
    draft_length: int = 512  # tokens of a window, and of each of the model's own continuations
    draft_batch: int = 64
    draft_anchors: int = 64
    own_rows: int = 8192  # the model's own continuations; few are learnt by heart


FULL = Recipe(
    spec=DEMO,
    tokens=315_000_000,
    phases=(Phase(0.68, 1024, 64), Phase(0.32, 2048, 32)),
    matrix_rate=3e-3,
    other_rate=1.5e-3,
    warmup_steps=200,
)

TINY_RUN = Recipe(
    spec=TINY,
    documents=200,
    tokens=40 * 8 * 64,
    phases=(Phase(0.75, 64, 8), Phase(0.25, 128, 4)),
    matrix_rate=4e-3,
    other_rate=4e-3,
    warmup_steps=4,
    draft_steps=20,
    draft_length=64,
    draft_batch=4,
    draft_anchors=6,
    own_rows=8,
)
