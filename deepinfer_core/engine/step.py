"""What the queue needs of a StepPlan: the names of the integers in one buffer. The C++ layout writes them in this order
(`csrc/step_layout.hpp`); nothing here touches the device, `runner.py` unpacks the buffer there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import torch

from deepinfer_core.scheduling.native import lay_out

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from deepinfer_core.interfaces.scheduler import StepPlan
    from deepinfer_core.sampling.plan import SamplingPlan

    Int32 = NDArray[np.int32]

Array = TypeVar("Array")


class SegmentFields(NamedTuple, Generic[Array]):
    """The integers of each of B segments; on the device, repeated for each of the segment's rows."""

    slot: Array
    decode: Array  # 1 where position and token are the device's to know
    start: Array  # first position; unused for decode
    first_row: Array  # index of the first row within the step
    last_offset: Array  # offset of the last row within the segment
    kept_first_row: Array  # index of the first kept row within the kept rows
    kept_first_offset: Array  # its offset within the segment
    decoder_floor: Array  # lowest position that a kept row's window may look at in the decoder half
    floor: Array  # and any row's in the others: where the request's rows begin
    write_start: Array  # positions below it lie in shared blocks


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
    past_slot: Array  # tokens before a prefix hit's first row
    past_index: Array
    past_token: Array
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


def build_step(plan: StepPlan, sampling: SamplingPlan, prompt: PromptRows, history_rows: int) -> HostStep:
    """Lay out a plan. `history_rows`: rows of the device's token ring."""
    assert not plan.drafts.any(), "a plan with drafts needs a drafter"
    buffer, sizes = lay_out(plan, prompt.logit, prompt.target, history_rows)
    return HostStep(
        step=plan.step,
        buffer=torch.from_numpy(buffer),
        segments=len(plan.slot),
        sizes=sizes,
        max_end=plan.max_end,
        sampling=sampling,
        prompt=prompt,
    )
