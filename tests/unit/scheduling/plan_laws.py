"""What must hold of every step plan by itself, worked out again from its segments."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deepinfer_core.interfaces.scheduler import SchedulerLimits, SchedulerRequest, SegmentKind, StepPlan

PER_SEGMENT = (
    *("request", "slot", "kind", "first_position", "num_rows", "drafts", "decoder_start", "sample_start"),
    *("replay_start", "write_start"),
)


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
        _check_hit(plan, i, requests[int(plan.request[i])], limits)
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


def _check_hit(plan: StepPlan, i: int, request: SchedulerRequest, limits: SchedulerLimits) -> None:
    """What a prefix hit spares is far enough before whatever must be right."""
    start, shared, first = int(plan.replay_start[i]), int(plan.write_start[i]), int(plan.first_position[i])
    if shared == 0:
        assert start == 0
        return
    rules = limits.prefix
    assert rules is not None
    assert request.cache_key, "a request without a key shares blocks"
    assert not request.prompt_logits, "rows whose logits are wanted are spared"
    assert 0 < start <= shared
    assert start <= first, "a row lies in what was spared"
    assert shared % limits.block_size == 0
    assert start + rules.key_rows <= shared, "the keys after the hit look before the replay"
    if plan.kind[i] == SegmentKind.PREFILL_LAST and start + rules.kept_rows > request.decoder_start:
        last = first + int(plan.num_rows[i]) - 1
        assert start + rules.logit_rows <= last, "the last row's logits look before the replay"


def given_blocks(plan: StepPlan, limits: SchedulerLimits) -> set[int]:
    """The blocks that the plan gives to a request for itself alone."""
    shared = dict(zip(plan.slot.tolist(), plan.write_start.tolist(), strict=True))
    entries = zip(plan.table_slot.tolist(), plan.table_index.tolist(), plan.table_block.tolist(), strict=True)
    return {block for slot, index, block in entries if index * limits.block_size >= shared[slot]}
