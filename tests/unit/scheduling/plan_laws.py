"""What must hold of every step plan by itself, worked out again from its segments."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deepinfer_core.interfaces.scheduler import SchedulerLimits, SchedulerRequest, SegmentKind, StepPlan

PER_SEGMENT = ("request", "slot", "kind", "first_position", "num_rows", "drafts", "decoder_start", "sample_start")


def check_plan(plan: StepPlan, limits: SchedulerLimits, requests: Mapping[int, SchedulerRequest]) -> None:
    segments = len(plan.request)
    assert segments > 0
    assert all(len(getattr(plan, name)) == segments for name in (*PER_SEGMENT, "kept_first"))
    assert len(set(plan.request.tolist())) == segments, "a request has two segments"
    assert len(set(plan.slot.tolist())) == segments, "two segments share a slot"
    assert len(plan.tokens) == len(plan.segment) == len(plan.offset) == plan.num_rows.sum() <= limits.max_step_tokens
    assert plan.segment.tolist() == np.repeat(np.arange(segments), plan.num_rows).tolist()
    assert plan.offset.tolist() == [i for count in plan.num_rows for i in range(count)]
    assert plan.max_end == max(plan.first_position + plan.num_rows) <= limits.max_length
    kept: list[int] = []
    logits: list[int] = []
    row = 0
    for i in range(segments):
        _check_segment(plan, i, row, requests[int(plan.request[i])], kept, logits)
        row += int(plan.num_rows[i])
    assert plan.kept.tolist() == kept
    assert plan.logit_rows.tolist() == logits


def _check_segment(
    plan: StepPlan, i: int, row: int, request: SchedulerRequest, kept: list[int], logits: list[int]
) -> None:
    count, first, kind = int(plan.num_rows[i]), int(plan.first_position[i]), plan.kind[i]
    assert count > 0
    assert plan.decoder_start[i] == request.decoder_start
    assert plan.drafts[i] == (count - 1 if kind == SegmentKind.DECODE else 0)
    mine = [j for j in range(count) if first + j >= request.decoder_start]
    assert plan.kept_first[i] == (mine[0] if mine else count)
    index_of = {j: len(kept) + n for n, j in enumerate(mine)}
    kept += [row + j for j in mine]
    if kind == SegmentKind.DECODE:
        sampled = list(range(count))
    else:
        sampled = [count - 1] if kind == SegmentKind.PREFILL_LAST else []
    assert plan.sample_start[i] == -1 or sampled
    wanted = mine if request.prompt_logits and kind != SegmentKind.DECODE else sampled
    logits += [index_of[j] for j in wanted]
    if sampled:
        assert plan.logit_rows[plan.sample_start[i]] == index_of[sampled[0]]
