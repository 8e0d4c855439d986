"""The Scheduler of `interfaces/scheduler.py` over the C++ one. Conversions only; every decision is made in `csrc/`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields
from typing import TYPE_CHECKING

from deepinfer_core import _native
from deepinfer_core.interfaces.scheduler import (
    Committed,
    SchedulerLimits,
    SchedulerRequest,
    SchedulerStats,
    StepPlan,
)

if TYPE_CHECKING:
    from deepinfer_core.interfaces.scheduler import Int32


class NativeScheduler:
    """Continuous batching, first come first served. Not thread-safe: one thread calls it.

    A step takes decode segments first, then prefills under way, then newcomers, each in order of arrival, up to
    `max_step_tokens` rows. When a decode finds no free block, the latest arrival is preempted: it waits again, in its
    place, and later prefills its prompt and all that it had committed. With prefix rules, a newcomer takes the blocks
    that others filled with the same beginning. Planning and committing release the GIL.
    """

    def __init__(self, limits: SchedulerLimits) -> None:
        """Raises ValueError for a limit that cannot be."""
        self.limits = limits
        sizes = {f.name: getattr(limits, f.name) for f in fields(limits)}
        rules = None if limits.prefix is None else astuple(limits.prefix)
        self._core = _native.Scheduler(**{**sizes, "prefix": rules})

    def add(self, request: SchedulerRequest) -> None:
        """Queue a request. Raises `RequestTooLarge`, `PromptTooLong` or `RequestError` for what can never be served."""
        self._core.add(
            request=request.request,
            prompt=request.prompt,
            max_new_tokens=request.max_new_tokens,
            min_new_tokens=request.min_new_tokens,
            stop_tokens=request.stop_tokens,
            decoder_start=request.decoder_start,
            prompt_logits=request.prompt_logits,
            cache_key=request.cache_key,
        )

    def set_drafts(self, request: int, drafts: int) -> None:
        """Let the request's next decode segments carry at most `drafts` drafts; it starts with `max_drafts`."""
        self._core.set_drafts(request, drafts)

    def plan(self) -> StepPlan | None:
        """The next step, or None when nothing can run before a commit or an `add`."""
        plan = self._core.plan()
        return None if plan is None else StepPlan(**plan)

    def commit(self, step: int, tokens: Int32, counts: Int32) -> Committed:
        """Take a step's results. Raises ValueError, and changes nothing, for results that do not fit the step."""
        return Committed(**self._core.commit(step, tokens, counts))

    def finish(self, request: int) -> None:
        """End a request early. Nothing happens when it has already ended."""
        self._core.finish(request)

    def forget(self, blocks: Sequence[int] | None = None) -> None:
        """Forget what cached blocks hold, all or these. Raises ValueError for a block that does not exist."""
        self._core.forget(blocks)

    def stats(self) -> SchedulerStats:
        return SchedulerStats(**self._core.stats())

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        self._core.check()


def lay_out(plan: StepPlan, prompt_logit: Int32, prompt_target: Int32, history_rows: int) -> tuple[Int32, list[int]]:
    """A plan as one buffer of integers, and the sizes of its fields; `engine/step.py` names them.

    prompt_logit and prompt_target [M]: logit rows that score a prompt token, and that token. `history_rows`: rows of
    the device's token ring. Raises ValueError for arrays that do not fit together.
    """
    return _native.lay_out(
        plan.slot,
        plan.kind,
        plan.first_position,
        plan.num_rows,
        plan.decoder_start,
        plan.sample_start,
        plan.kept_first,
        plan.replay_start,
        plan.write_start,
        plan.tokens,
        plan.segment,
        plan.offset,
        plan.kept,
        plan.logit_rows,
        plan.new_slots,
        plan.past_slot,
        plan.past_position,
        plan.past_token,
        plan.table_slot,
        plan.table_index,
        plan.table_block,
        prompt_logit,
        prompt_target,
        history_rows,
    )
