"""The DSpark draft stages as weights. They are loaded with the model; drafting itself is a drafter's business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.interfaces.ops import Weight
from deepinfer_core.models.deepseek_v41.config import DeepseekV41Config
from deepinfer_core.models.deepseek_v41.weights import BlockWeights, TensorSource, describe_block

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class DraftWeights:
    """Stages in order. They share the model's embedding and head."""

    main_proj: Weight  # over the tapped layers' hidden states, side by side
    main_norm: Tensor
    stages: tuple[BlockWeights, ...]
    norm: Tensor
    markov_embed: Weight
    markov_head: Weight
    confidence: Weight


def describe_draft(source: TensorSource, config: DeepseekV41Config) -> DraftWeights | None:
    """Every tensor under `mtp.`, or None when the checkpoint has no draft stages."""
    draft = config.draft
    if draft is None:
        return None
    hidden, vocab, rank = config.hidden_size, config.vocab_size, draft.markov_rank
    last = f"mtp.{draft.num_stages - 1}"
    stages = range(draft.num_stages)
    return DraftWeights(
        main_proj=source.quantised("mtp.0.main_proj", hidden, len(draft.target_layer_ids) * hidden),
        main_norm=source.norm("mtp.0.main_norm.weight", hidden),
        stages=tuple(describe_block(source, config, f"mtp.{stage}", draft.n_routed_experts) for stage in stages),
        norm=source.norm(f"{last}.norm.weight", hidden),
        markov_embed=source.matrix(f"{last}.markov_head.embed", vocab, rank),
        markov_head=source.matrix(f"{last}.markov_head.head", vocab, rank),
        confidence=source.matrix(f"{last}.confidence_head.proj", 1, hidden + rank),
    )
