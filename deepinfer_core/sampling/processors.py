"""The stages between the model's logits and the draw, in order, each for the rows that need it.

All stages write into logits [N, V] that the caller owns and keep every row apart from the others. V is the tokenizer's
vocabulary: a head's padding columns were cut off before.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from deepinfer_core.interfaces.sampler import LogitsProcessor, SampledRows
from deepinfer_core.sampling.plan import BadWords, RowTokens, SamplingPlan, TokenBias, TokenMask

if TYPE_CHECKING:
    from deepinfer_core.ops.table import OpTable
    from deepinfer_core.sampling.table import SamplingTable


logger = logging.getLogger(__name__)


class Processors(Protocol):
    """Plugins' stages by name."""

    def __getitem__(self, name: str, /) -> LogitsProcessor: ...


def apply_stages(
    ops: OpTable,
    processors: Processors,
    logits: Tensor,
    rows: SampledRows,
    table: SamplingTable,
    plan: SamplingPlan,
    history: Tensor,
    mask: TokenMask | None,
) -> None:
    """Bias, penalties, bad words, min_tokens, allowed ids, plugins' stages, constraint mask: as the plan says."""
    if plan.bias is not None:
        add_bias(logits, plan.bias)
    if plan.penalised is not None:
        penalise(ops, logits, rows, table, plan.penalised)
    if plan.bad_words is not None:
        ban_bad_words(logits, rows, plan.bad_words, history)
    if plan.stops is not None:
        ban_stops(logits, rows, table, plan.stops)
    if plan.masked is not None:
        _mask(ops, logits, plan.masked, table.masks(rows.slot[plan.masked]))
    for stage in plan.processors:
        run_processor(stage.name, processors[stage.name], logits, rows, stage.rows)
    if mask is not None:
        _mask(ops, logits, mask.rows, mask.bits)


def add_bias(logits: Tensor, bias: TokenBias) -> None:
    """Add each value to its row's token."""
    logits[bias.row, bias.token] += bias.value


def penalise(ops: OpTable, logits: Tensor, rows: SampledRows, table: SamplingTable, penalised: Tensor) -> None:
    """Repetition, presence and frequency penalties of the rows given, from the counts of their slots.

    One row a request: nothing lies between the counted tokens and the row's position.
    """
    slot = rows.slot[penalised]
    values = table.values.at(slot)
    prompt_seen, counts = table.token_counts(slot)
    logits[penalised] = ops.apply_penalties(
        logits[penalised], prompt_seen, counts, values.repetition, values.presence, values.frequency
    )


def ban_bad_words(logits: Tensor, rows: SampledRows, words: BadWords, history: Tensor) -> None:
    """Ban a word's last token where the tokens before it have just been generated. Prompt tokens never match.

    history int64 [slots, R], R >= BAD_WORD_HISTORY: the token of position p at p % R.
    """
    back = torch.arange(words.prefix.shape[1], device=logits.device)
    place = (rows.position[words.row].long()[:, None] - 1 - back) % history.shape[1]
    generated = rows.generated[words.row][:, None] > back
    equal = generated & (history[rows.slot[words.row][:, None], place] == words.prefix)
    _ban(logits, words.row, words.token, (equal | (words.prefix < 0)).all(dim=-1))


def ban_stops(logits: Tensor, rows: SampledRows, table: SamplingTable, stops: RowTokens) -> None:
    """Ban the ids that would end an answer while it has fewer than min_tokens tokens."""
    early = rows.generated < table.values.at(rows.slot).min_tokens
    _ban(logits, stops.row, stops.token, early[stops.row])


def run_processor(name: str, processor: LogitsProcessor, logits: Tensor, rows: SampledRows, index: Tensor) -> None:
    """A plugin's stage on the rows int64 [n] that asked for it, which is all that it sees.

    Where it fails, the rows are tried one by one, and those that still fail become NaN: their requests fail alone.
    """
    seen = SampledRows(rows.slot[index], rows.position[index], rows.generated[index])
    try:
        changed = processor.apply(logits[index], seen)
        _refuse_other(changed, (len(index), logits.shape[1]), logits)
    except Exception:
        if len(index) > 1:
            for one in torch.split(index, 1):
                run_processor(name, processor, logits, rows, one)
            return
        logger.exception("the logits processor %r failed on a row", name)
        changed = logits.new_full((len(index), logits.shape[1]), math.nan)
    logits[index] = changed


def _refuse_other(changed: Any, shape: tuple[int, int], logits: Tensor) -> None:
    """Raise when what a plugin's stage gave cannot take the place of rows of `logits`."""
    if not isinstance(changed, Tensor):
        raise TypeError(f"it gave a {type(changed).__name__} and not a tensor")
    if changed.shape != shape:
        raise ValueError(f"it gave the shape {tuple(changed.shape)} for {shape[0]} rows of {shape[1]}")
    if (changed.dtype, changed.device) != (logits.dtype, logits.device):
        raise ValueError(f"it gave {changed.dtype} on {changed.device} for {logits.dtype} on {logits.device}")


def _mask(ops: OpTable, logits: Tensor, index: Tensor, bits: Tensor) -> None:
    logits[index] = ops.apply_token_mask(logits[index], bits)


def _ban(logits: Tensor, row: Tensor, token: Tensor, banned: Tensor) -> None:
    """-inf at (row, token) where `banned`. The minimum, as two entries may name one place and only one ban it."""
    limit = torch.where(banned, -math.inf, math.inf)
    logits.view(-1).scatter_reduce_(0, row * logits.shape[1] + token, limit, "amin")
