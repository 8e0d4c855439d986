"""From a StepPlan to what the queue needs of it: index arrays in one buffer, made without a Python loop over rows.

Nothing here touches the device; `runner.py` unpacks the buffer there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from deepinfer_core.interfaces.scheduler import SegmentKind

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from deepinfer_core.interfaces.scheduler import StepPlan
    from deepinfer_core.sampling.plan import SamplingPlan

    Int32 = NDArray[np.int32]

Array = TypeVar("Array")

_NONE = np.zeros(0, dtype=np.int32)
_DECODE = int(SegmentKind.DECODE)  # numpy compares with an enum ten times slower


class SegmentFields(NamedTuple, Generic[Array]):
    """The integers of each of B segments; on the device, repeated for each of the segment's rows."""

    slot: Array
    decode: Array  # 1 where position and token are the device's to know
    start: Array  # first position; unused for decode
    first_row: Array  # index of the first row within the step
    last_offset: Array  # offset of the last row within the segment
    kept_first_row: Array  # index of the first kept row within the kept rows
    kept_first_offset: Array  # its offset within the segment
    floor: Array  # the request's decoder start


class StepFields(NamedTuple, Generic[Array]):
    """The other integers of a step: T rows, K kept rows, N logit rows, n sampled segments. All are one-dimensional."""

    segment: Array  # [T] which segment a row belongs to
    offset: Array  # [T] within the segment
    token: Array  # [T] -1 where the device knows it
    kept: Array  # [K] indices into the rows
    logit_rows: Array  # [N] indices into the kept rows
    sample_logit: Array  # [n] indices into the logit rows
    sample_slot: Array  # [n]
    prompt_logit: Array  # [M] indices into the logit rows that score a prompt token
    prompt_target: Array  # [M] the token that each of them scores
    # what the step leaves behind
    prefill_slot: Array  # segments of prefill: their slots,
    prefill_end: Array  # and lengths after the step
    decode_slot: Array  # segments of decode: their slots,
    decode_sample: Array  # and indices into the n sampled segments
    history_slot: Array  # tokens of prefill chunks that enter the history
    history_index: Array
    history_token: Array
    # tables
    new_slot: Array
    table_slot: Array
    table_index: Array
    table_block: Array


@dataclass(frozen=True, slots=True)
class PromptRows:
    """Which logit rows of a step score prompt tokens, and for whom."""

    logit: Int32  # [M]
    target: Int32  # [M]
    spans: tuple[tuple[int, int, int], ...]  # (request handle, position of the first token, tokens), in order
    k: int  # the most alternatives that any of them wants


@dataclass(frozen=True, slots=True)
class HostStep:
    """One step, ready for the queue."""

    step: int
    buffer: Tensor  # int32: the segments' fields one after the other, then the step's
    segments: int  # B
    sizes: list[int]  # of the step's fields
    max_end: int
    sampling: SamplingPlan
    prompt: PromptRows

    def unpack(self, device: torch.device) -> tuple[SegmentFields[Tensor], StepFields[Tensor]]:
        """On the device: each row's segment fields as int32 [T], and the step's fields as int64, for indexing."""
        buffer = self.buffer.to(device, non_blocking=True)
        head = len(SegmentFields._fields) * self.segments
        fields = StepFields(*torch.split(buffer[head:].long(), self.sizes))
        by_segment = buffer[:head].view(-1, self.segments)
        return SegmentFields(*by_segment.index_select(1, fields.segment)), fields


def sampled_segments(plan: StepPlan) -> NDArray[np.int64]:
    """Indices of the segments that sample, in plan order."""
    return (plan.sample_start >= 0).nonzero()[0]


def build_step(
    plan: StepPlan, sampled: NDArray[np.int64], sampling: SamplingPlan, prompt: PromptRows, history_rows: int
) -> HostStep:
    """Lay out a plan. `sampled` are its `sampled_segments`; `history_rows`: rows of the device's token ring."""
    assert not plan.drafts.any(), "a plan with drafts needs a drafter"
    decode = plan.kind == _DECODE
    segments = _segment_fields(plan, decode)
    fields = _step_fields(plan, decode, sampled, prompt, history_rows)
    return HostStep(
        step=plan.step,
        buffer=torch.from_numpy(np.concatenate((*segments, *fields), dtype=np.int32, casting="same_kind")),
        segments=len(plan.slot),
        sizes=list(map(len, fields)),
        max_end=plan.max_end,
        sampling=sampling,
        prompt=prompt,
    )


def _segment_fields(plan: StepPlan, decode: NDArray[np.bool_]) -> SegmentFields[NDArray[np.integer]]:
    return SegmentFields(
        slot=plan.slot,
        decode=decode.view(np.int8),
        start=plan.first_position,
        first_row=_starts(plan.num_rows),
        last_offset=plan.num_rows - 1,
        kept_first_row=_starts(plan.num_rows - plan.kept_first),
        kept_first_offset=plan.kept_first,
        floor=plan.decoder_start,
    )


def _step_fields(
    plan: StepPlan,
    decode: NDArray[np.bool_],
    sampled: NDArray[np.int64],
    prompt: PromptRows,
    history_rows: int,
) -> StepFields[NDArray[np.integer]]:
    prefill = ~decode
    remembered = _remembered(plan, prefill, history_rows)
    sample_of_segment = (plan.sample_start >= 0).cumsum() - 1
    return StepFields(
        segment=plan.segment,
        offset=plan.offset,
        token=plan.tokens,
        kept=plan.kept,
        logit_rows=plan.logit_rows,
        sample_logit=plan.sample_start[sampled],
        sample_slot=plan.slot[sampled],
        prompt_logit=prompt.logit,
        prompt_target=prompt.target,
        prefill_slot=plan.slot[prefill],
        prefill_end=(plan.first_position + plan.num_rows)[prefill],
        decode_slot=plan.slot[decode],
        decode_sample=sample_of_segment[decode],
        history_slot=remembered[0],
        history_index=remembered[1],
        history_token=remembered[2],
        new_slot=plan.new_slots,
        table_slot=plan.table_slot,
        table_index=plan.table_index,
        table_block=plan.table_block,
    )


def _remembered(plan: StepPlan, prefill: NDArray[np.bool_], rows: int) -> tuple[NDArray[np.integer], ...]:
    """Slot, ring row and token of the last `rows` tokens of each prefill chunk."""
    if not prefill.any():
        return _NONE, _NONE, _NONE
    segment = plan.segment
    chosen = prefill[segment] & (plan.offset >= (plan.num_rows - rows)[segment])
    of_chosen = segment[chosen]
    position = plan.first_position[of_chosen] + plan.offset[chosen]
    return plan.slot[of_chosen], position % rows, plan.tokens[chosen]


def _starts(counts: Int32) -> NDArray[np.int64]:
    """Where each run begins when runs of these lengths are laid end to end."""
    return np.cumsum(counts) - counts
