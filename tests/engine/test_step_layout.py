"""The layout of a step against a plain loop over its segments: every field, in the order in which it is unpacked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.engine.step import HostStep, PromptRows, SegmentFields, StepFields, build_step
from deepinfer_core.interfaces.scheduler import SegmentKind, StepPlan
from deepinfer_core.sampling.plan import SamplingPlan
from deepinfer_core.scheduling.native import lay_out

HISTORY = 4


@st.composite
def segments(draw):
    """(slot, kind, first position, rows, first kept row, whether it samples) of each segment."""
    count = draw(st.integers(1, 6))  # a plan is never empty
    made = []
    for slot in draw(st.permutations(range(8)))[:count]:
        kind = draw(st.sampled_from(list(SegmentKind)))
        rows = 1 if kind is SegmentKind.DECODE else draw(st.integers(1, 9))
        kept = 0 if kind is not SegmentKind.PREFILL else draw(st.integers(0, rows))
        made.append((slot, kind, draw(st.integers(0, 50)), rows, kept, kind is not SegmentKind.PREFILL))
    return made


def ints(values):
    return np.array(list(values), dtype=np.int32)


def plan_of(made) -> StepPlan:
    rows = [(s, i) for s, (_, _, _, n, _, _) in enumerate(made) for i in range(n)]
    kept = [r for r, (s, i) in enumerate(rows) if i >= made[s][4]]
    logit = [k for k, r in enumerate(kept) if made[rows[r][0]][5] and rows[r][1] == made[rows[r][0]][3] - 1]
    samples = iter(range(len(logit)))
    none = ints([])
    return StepPlan(
        step=3,
        request=np.arange(len(made), dtype=np.int64),
        slot=ints(m[0] for m in made),
        kind=ints(int(m[1]) for m in made),
        first_position=ints(m[2] for m in made),
        num_rows=ints(m[3] for m in made),
        drafts=ints(0 for _ in made),
        decoder_start=ints(m[2] + 1 for m in made),
        sample_start=ints(next(samples) if m[5] else -1 for m in made),
        tokens=ints(100 + r for r in range(len(rows))),
        segment=ints(s for s, _ in rows),
        offset=ints(i for _, i in rows),
        kept=ints(kept),
        kept_first=ints(m[4] for m in made),
        logit_rows=ints(logit),
        replay_start=ints(m[2] + 2 * (m[0] % 2) for m in made),
        write_start=ints(m[2] + 4 for m in made),
        new_slots=ints(m[0] for m in made[:2]),
        new_slot_requests=np.zeros(len(made[:2]), np.int64),
        new_slot_cached=ints(0 for _ in made[:2]),
        past_slot=ints([3, 3, 4]),
        past_position=ints([11, 12, 6]),
        past_token=ints([21, 22, 23]),
        table_slot=ints([5, 6]),
        table_index=ints([7, 8]),
        table_block=ints([9, 10]),
        max_end=60,
        preempted=none.astype(np.int64),
    )


def unpacked(step: HostStep) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    by_row, fields = step.unpack(torch.device("cpu"))
    assert isinstance(by_row, SegmentFields)
    return {k: v.tolist() for k, v in by_row._asdict().items()}, {k: v.tolist() for k, v in fields._asdict().items()}


@given(segments())
def test_every_field_is_where_its_name_says(made):
    plan = plan_of(made)
    prompt = PromptRows(ints([4, 2]), ints([77, 78]), (), 1)
    by_row, fields = unpacked(build_step(plan, SamplingPlan.__new__(SamplingPlan), prompt, HISTORY))
    first_rows = np.cumsum([0, *plan.num_rows])[:-1]
    first_kept = np.cumsum([0, *(plan.num_rows - plan.kept_first)])[:-1]
    wanted = {
        "slot": [made[s][0] for s in plan.segment],
        "decode": [int(made[s][1] is SegmentKind.DECODE) for s in plan.segment],
        "start": [made[s][2] for s in plan.segment],
        "first_row": [int(first_rows[s]) for s in plan.segment],
        "last_offset": [made[s][3] - 1 for s in plan.segment],
        "kept_first_row": [int(first_kept[s]) for s in plan.segment],
        "kept_first_offset": [made[s][4] for s in plan.segment],
        "decoder_floor": [max(made[s][2] + 1, made[s][2] + 2 * (made[s][0] % 2)) for s in plan.segment],
        "floor": [int(plan.replay_start[s]) for s in plan.segment],
        "write_start": [int(plan.write_start[s]) for s in plan.segment],
    }
    assert by_row == wanted
    assert fields == step_fields(made, plan)


def step_fields(made, plan: StepPlan) -> dict[str, list[int]]:
    prefill = [(s, m) for s, m in enumerate(made) if m[1] is not SegmentKind.DECODE]
    decode = [(s, m) for s, m in enumerate(made) if m[1] is SegmentKind.DECODE]
    sampled = [s for s, m in enumerate(made) if m[5]]
    remembered = [
        (m[0], (m[2] + i) % HISTORY, int(plan.tokens[(plan.segment == s).nonzero()[0][i]]))
        for s, m in prefill
        for i in range(max(0, m[3] - HISTORY), m[3])
    ]
    wanted = {name: getattr(plan, name).tolist() for name in ("segment", "offset", "kept", "logit_rows")}
    wanted |= {name: getattr(plan, name).tolist() for name in ("table_slot", "table_index", "table_block")}
    wanted |= {
        "token": plan.tokens.tolist(),
        "sample_logit": [int(plan.sample_start[s]) for s in sampled],
        "sample_slot": [made[s][0] for s in sampled],
        "prompt_logit": [4, 2],
        "prompt_target": [77, 78],
        "prefill_slot": [m[0] for _, m in prefill],
        "prefill_end": [m[2] + m[3] for _, m in prefill],
        "decode_slot": [m[0] for _, m in decode],
        "decode_sample": [sampled.index(s) for s, _ in decode],
        "history_slot": [slot for slot, _, _ in remembered],
        "history_index": [index for _, index, _ in remembered],
        "history_token": [token for _, _, token in remembered],
        "new_slot": plan.new_slots.tolist(),
        "past_slot": [3, 3, 4],
        "past_index": [11 % HISTORY, 12 % HISTORY, 6 % HISTORY],
        "past_token": [21, 22, 23],
    }
    assert set(wanted) == set(StepFields._fields)
    return wanted


@pytest.mark.parametrize("name", ["kind", "num_rows", "segment", "offset"])
def test_arrays_that_do_not_fit_together_are_refused(name):
    plan = plan_of([(1, SegmentKind.PREFILL_LAST, 0, 3, 0, True)])
    broken = replace(plan, **{name: np.concatenate([getattr(plan, name), ints([1])])})
    with pytest.raises(ValueError, match="entry"):
        lay_out(broken, ints([]), ints([]), HISTORY)


def test_a_negative_count_is_refused():
    plan = plan_of([(1, SegmentKind.PREFILL_LAST, 0, 3, 0, True), (2, SegmentKind.DECODE, 0, 1, 0, True)])
    with pytest.raises(ValueError, match="negative"):
        lay_out(replace(plan, num_rows=ints([5, -1])), ints([]), ints([]), HISTORY)


def test_another_dtype_is_refused():
    plan = plan_of([(1, SegmentKind.DECODE, 0, 1, 0, True)])
    with pytest.raises(TypeError):
        lay_out(replace(plan, tokens=plan.tokens.astype(np.int64)), ints([]), ints([]), HISTORY)
