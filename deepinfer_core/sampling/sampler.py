"""Sampler: from a step's logits to its tokens and logprobs, through the stages of `processors.py` and the draw.

Everything runs on the execution queue and never waits for the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from deepinfer_core.interfaces.sampler import Sampled, SampledRows
from deepinfer_core.ops.sample import filtered_scores
from deepinfer_core.sampling.plan import DrawGroup, LogprobRows, SamplingPlan, TokenMask, to_device
from deepinfer_core.sampling.processors import Processors, apply_stages

if TYPE_CHECKING:
    from deepinfer_core.ops.table import OpTable
    from deepinfer_core.sampling.table import SamplingTable


@dataclass(frozen=True, slots=True)
class Scores:
    """Logprobs of N tokens with k alternatives each. An alternative of probability zero has id -1."""

    logprob: Tensor  # float32 [N]
    rank: Tensor  # int32 [N]
    top_ids: Tensor  # int64 [N, k]
    top_logprobs: Tensor  # float32 [N, k]


class Sampler:
    """Draws the next token of each row. A row's result depends on that row alone, whatever the others ask for.

    `vocab_size` counts the tokenizer's ids; a head's further columns are padding, cut off first and never seen again.
    `logprobs_mode` is vLLM's: "raw" logprobs are of the model's logits before every stage, "processed" ones of what
    the token is drawn from, after stages, temperature, top-k, top-p and min-p (of a greedy row: after stages).
    """

    def __init__(
        self,
        ops: OpTable,
        vocab_size: int,
        logprobs_mode: Literal["raw", "processed"] = "raw",
        processors: Processors | None = None,
    ) -> None:
        """`processors` holds every plugin stage that a plan names."""
        self._ops = ops
        self._vocab_size = vocab_size
        self._processed = logprobs_mode == "processed"
        self._processors: Processors = {} if processors is None else processors

    def sample(
        self,
        logits: Tensor,
        rows: SampledRows,
        table: SamplingTable,
        plan: SamplingPlan,
        history: Tensor,
        mask: TokenMask | None = None,
    ) -> Sampled:
        """Sample one token for each row, and count it for the penalties of the next step.

        logits: float32 [N, head rows], left as they are. history: int64 [slots, R], R >= BAD_WORD_HISTORY; holds the
        token of position p at p % R for the R positions before each row's. mask: the rows that a constraint binds.
        Results are [N, 1], one row for each request of the step. `logprob` and what follows it are None when no row
        asked for logprobs; rows that did not ask hold NaN, 0 and -1. A row fails when its logits hold NaN or +inf or
        when no token is left; its token is 0 and means nothing.
        """
        plan, mask = to_device(plan, logits.device), to_device(mask, logits.device)
        raw = logits[:, : self._vocab_size]
        failed = _hopeless(raw)
        allowed = raw
        if plan.changes_logits or mask is not None:
            allowed = raw.clone(memory_format=torch.contiguous_format)
            apply_stages(self._ops, self._processors, allowed, rows, table, plan, history, mask)
            failed = failed | _hopeless(allowed)
        tokens = self._draw(allowed, rows, table, plan.groups).masked_fill(failed, 0)
        if plan.penalised is not None:
            table.count(rows.slot[plan.penalised], tokens[plan.penalised])
        scores = None
        if plan.logprobs is not None:
            source = self._logprob_source(raw, allowed, rows, table, plan.logprobs.rows)
            scores = self._scores(source, tokens[plan.logprobs.rows], plan.logprobs.k)
        return _sampled(tokens, failed, plan.logprobs, scores)

    def score(self, logits: Tensor, tokens: Tensor, k: int) -> Scores:
        """Raw logprobs of the tokens int64 [N] under logits [N, head rows], with the k most likely: for prompts.

        A prompt may hold ids of the head's padding, which have no probability: logprob -inf, rank after all others.
        """
        scores = self._scores(logits[:, : self._vocab_size], tokens.clamp(max=self._vocab_size - 1), k)
        padding = tokens >= self._vocab_size
        return replace(
            scores,
            logprob=scores.logprob.masked_fill(padding, -math.inf),
            rank=scores.rank.masked_fill(padding, self._vocab_size + 1),
        )

    def _draw(self, logits: Tensor, rows: SampledRows, table: SamplingTable, groups: tuple[DrawGroup, ...]) -> Tensor:
        tokens = torch.zeros(logits.shape[0], dtype=torch.int64, device=logits.device)
        for group in groups:
            if group.rows is None:
                tokens = self._draw_group(logits, rows.slot, rows.position, table, group)
            else:
                index = group.rows
                tokens[index] = self._draw_group(logits[index], rows.slot[index], rows.position[index], table, group)
        return tokens

    def _draw_group(
        self, logits: Tensor, slot: Tensor, position: Tensor, table: SamplingTable, group: DrawGroup
    ) -> Tensor:
        values = table.values.at(slot)
        return self._ops.sample_tokens(
            logits,
            None if group.greedy else values.temperature,
            values.top_k if group.top_k else None,
            values.top_p if group.top_p else None,
            values.min_p if group.min_p else None,
            values.seed,
            values.sample,
            position,
            group.max_candidates,
        )

    def _logprob_source(
        self, raw: Tensor, allowed: Tensor, rows: SampledRows, table: SamplingTable, index: Tensor
    ) -> Tensor:
        if not self._processed:
            return raw[index]
        values = table.values.at(rows.slot[index])
        return filtered_scores(allowed[index], values.temperature, values.top_k, values.top_p, values.min_p)

    def _scores(self, logits: Tensor, tokens: Tensor, k: int) -> Scores:
        logprob, rank, ids, values = self._ops.top_logprobs(logits, tokens, k)
        return Scores(logprob, rank, ids.masked_fill(values == -math.inf, -1), values)


def _hopeless(logits: Tensor) -> Tensor:
    """bool [N]: NaN or +inf somewhere in the row, or -inf everywhere. The maximum of a row with NaN is NaN."""
    return ~logits.amax(dim=-1).isfinite()


def _sampled(tokens: Tensor, failed: Tensor, asked: LogprobRows | None, scores: Scores | None) -> Sampled:
    """Results in their [N, 1] shapes, logprobs placed in the rows that asked."""
    n, device = tokens.shape[0], tokens.device
    counts = torch.ones(n, dtype=torch.int32, device=device)
    if asked is None or scores is None:
        return Sampled(tokens[:, None], counts, failed, None, None, None, None)

    def placed(part: Tensor, missing: float) -> Tensor:
        whole = torch.full((n, *part.shape[1:]), missing, dtype=part.dtype, device=device)
        return whole.index_copy_(0, asked.rows, part).unsqueeze(1)

    return Sampled(
        tokens=tokens[:, None],
        counts=counts,
        failed=failed,
        logprob=placed(scores.logprob, math.nan),
        rank=placed(scores.rank, 0),
        top_ids=placed(scores.top_ids, -1),
        top_logprobs=placed(scores.top_logprobs, math.nan),
    )
