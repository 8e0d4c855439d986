"""Masks, penalties, the draw, logprobs and the acceptance of drafts. Meanings: deepinfer_core/ops/sample.py."""

from __future__ import annotations

from torch import Tensor

from deepinfer_core.ops import sample as ops
from deepinfer_cpu._kernels import Table


class Sampling:
    """The kernels of sample.py, on one instruction set."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def sample_tokens(
        self,
        logits: Tensor,
        temperature: Tensor | None,
        top_k: Tensor | None,
        top_p: Tensor | None,
        min_p: Tensor | None,
        seed: Tensor,
        sample: Tensor,
        position: Tensor,
        max_candidates: int | None = None,
    ) -> Tensor:
        """[N, V] -> int64 [N]. What sorts the vocabulary is left to torch; the draw over all of it is ours."""
        if top_k is not None or top_p is not None:
            return ops.sample_tokens(logits, temperature, top_k, top_p, min_p, seed, sample, position, max_candidates)
        return self._table.sample_tokens(logits, temperature, min_p, seed, sample, position)

    def apply_token_mask(self, logits: Tensor, mask: Tensor) -> Tensor:
        """[N, V] -> [N, V]."""
        return self._table.apply_token_mask(logits, mask)

    def apply_penalties(
        self,
        logits: Tensor,
        prompt_seen: Tensor,
        counts: Tensor,
        repetition: Tensor,
        presence: Tensor,
        frequency: Tensor,
    ) -> Tensor:
        """[N, V] -> [N, V]."""
        return self._table.apply_penalties(logits, prompt_seen, counts, repetition, presence, frequency)

    def top_logprobs(self, logits: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """[N, V] -> logprob [N], rank [N], ids [N, k], values [N, k]."""
        return self._table.top_logprobs(logits, tokens, k)

    def verify_drafts(self, target: Tensor, drafts: Tensor, num_drafts: Tensor) -> Tensor:
        """[B, 1+d] and [B, d] -> int32 [B]."""
        return self._table.verify_drafts(target, drafts, num_drafts)
