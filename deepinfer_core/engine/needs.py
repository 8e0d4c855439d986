"""What a plan needs of the live requests: sampling state for new slots, prompt tokens to score, constraint masks.

Loops here are over segments that ask for something rare, never over rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from deepinfer_core.engine.step import PromptRows
from deepinfer_core.interfaces.scheduler import SegmentKind
from deepinfer_core.sampling.plan import TokenMask
from deepinfer_core.sampling.request import SlotSampling

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deepinfer_core.engine.book import Book
    from deepinfer_core.engine.sequence import Sequence
    from deepinfer_core.interfaces.scheduler import StepPlan

_NONE = np.zeros(0, dtype=np.int32)
NO_PROMPT_ROWS = PromptRows(_NONE, _NONE, (), 0)


def slot_samplings(plan: StepPlan, book: Book) -> list[SlotSampling]:
    """The sampling state of each slot that the plan gave away, with what a resumed answer has already said."""
    found = []
    for slot, handle in zip(plan.new_slots.tolist(), plan.new_slot_requests.tolist(), strict=True):
        sequence = book.sequence(handle)
        assert sequence is not None, "a plan gives slots to live requests only"
        admitted = sequence.owner.admitted
        output = np.asarray(sequence.ids, dtype=np.int32)
        found.append(SlotSampling(slot, admitted.sampling, sequence.index, admitted.prompt, output))
    return found


def prompt_rows(plan: StepPlan, book: Book) -> PromptRows:
    """The logit rows that score a prompt token: row at position p scores the token of position p + 1."""
    if not book.scoring:
        return NO_PROMPT_ROWS
    segment_of_logit = plan.segment[plan.kept[plan.logit_rows]]
    logit, target, spans, k = [], [], [], 0
    for segment in np.flatnonzero(plan.kind != SegmentKind.DECODE).tolist():
        sequence = book.scoring.get(int(plan.request[segment]))
        if sequence is None:
            continue
        first = int(plan.first_position[segment]) + 1
        scored = sequence.owner.admitted.prompt[first : first + int(plan.num_rows[segment])]
        if len(scored):
            base = int(np.searchsorted(segment_of_logit, segment))
            logit.append(np.arange(base, base + len(scored), dtype=np.int32))
            target.append(scored)
            spans.append((sequence.handle, first, len(scored)))
            k = max(k, sequence.owner.admitted.params.prompt_logprobs or 0)
    if not spans:
        return NO_PROMPT_ROWS
    return PromptRows(np.concatenate(logit), np.concatenate(target), tuple(spans), k)


def constrained(handles: NDArray[np.int64], book: Book) -> list[tuple[int, Sequence]]:
    """(sampled row, answer) for each answer with a constraint among a step's sampled segments."""
    if not book.constrained:
        return []
    rows = ((row, book.constrained.get(handle)) for row, handle in enumerate(handles.tolist()))
    return [(row, sequence) for row, sequence in rows if sequence is not None]


def token_mask(handles: NDArray[np.int64], book: Book, vocab_size: int) -> TokenMask | None:
    """What constraints allow next, for the answers that still run. A constraint that fails here ends its request."""
    bound = constrained(handles, book)
    bits = np.zeros((len(bound), -(-vocab_size // 32)), dtype=np.int32)
    good = [i for i, (_, sequence) in enumerate(bound) if book.masked(sequence, bits[i : i + 1])]
    if not good:
        return None
    return TokenMask(torch.tensor([bound[i][0] for i in good]), torch.from_numpy(bits[good]))
