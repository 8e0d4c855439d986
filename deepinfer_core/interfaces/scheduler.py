"""The scheduler's contract: requests in, step plans out, sampled tokens back.

The scheduler owns which request has which slot and blocks, and every committed token. The device owns the true lengths
while steps are in flight; a plan's decode positions are upper bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int32 = NDArray[np.int32]
    Int64 = NDArray[np.int64]


class SegmentKind(IntEnum):
    """What a request does in a step."""

    PREFILL = 0  # a chunk that does not reach the end of what is known; nothing is sampled
    PREFILL_LAST = 1  # the chunk that ends the known tokens; its last row is sampled
    DECODE = 2  # the last token (and drafts), whose ids and positions the device knows


class FinishCode(IntEnum):
    """Why a request ended, as the scheduler sees it."""

    NONE = 0
    STOP = 1  # an end-of-sequence or stop token
    LENGTH = 2  # max_new_tokens, or the context is full


@dataclass(frozen=True, slots=True)
class PrefixRules:
    """What is computed again at a prefix hit, because sliding windows are not kept with the blocks ("replay").

    A replay begins so many rows before the first row that must be right: `key_rows` for the keys that rows after the
    hit write to blocks, and either `kept_rows` for the row where the request's decoder half begins or `logit_rows` for
    the last known token's row.
    """

    key_rows: int
    kept_rows: int
    logit_rows: int
    history_rows: int = 0  # tokens before a replay that a plan repeats


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Sizes fixed for the life of a scheduler."""

    max_slots: int  # requests running at once
    num_blocks: int  # cache blocks in the pool
    block_size: int  # native tokens a block
    max_step_tokens: int  # rows a step
    max_length: int  # positions a sequence may have
    max_drafts: int = 0  # drafts a decode segment may carry
    prefix: PrefixRules | None = None  # None: no block outlives its request


@dataclass(frozen=True, slots=True)
class SchedulerRequest:
    """What the scheduler must know of a request. Requests are served in the order in which they are added."""

    request: int  # a handle chosen by the caller, never reused
    prompt: Int32
    max_new_tokens: int  # 0: the prompt alone; what its last row samples is dropped
    min_new_tokens: int = 0  # a stop token counts only with at least this many tokens before it
    stop_tokens: tuple[int, ...] = ()
    decoder_start: int = 0  # first position that runs the decoder half of the model
    prompt_logits: bool = False  # logits of every row are wanted, not only of the last
    cache_key: bytes = b""  # 16 bytes: requests of one key share blocks; empty: it shares none


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step as flat arrays: B segments (one a request), T rows, K kept rows, N logit rows.

    The arrays are owned by the plan and may be read until its commit. Rows of a segment are consecutive.
    """

    step: int
    # segments
    request: Int64  # [B]
    slot: Int32  # [B]
    kind: Int32  # [B] SegmentKind
    first_position: Int32  # [B] exact for prefill, an upper bound for decode
    num_rows: Int32  # [B] rows of the segment; 1 + drafts for decode
    drafts: Int32  # [B]
    decoder_start: Int32  # [B]
    sample_start: Int32  # [B] index into logit_rows of the segment's first sampled row (1 + drafts of them), or -1
    # rows
    tokens: Int32  # [T] token id, or -1 where the device knows it
    segment: Int32  # [T] index of the row's segment
    offset: Int32  # [T] index of the row within its segment
    kept: Int32  # [K] rows that run the decoder half, ascending
    kept_first: Int32  # [B] offset within the segment of its first kept row (num_rows where none is kept)
    replay_start: Int32  # [B] positions below it were never run for this request: no window looks there
    write_start: Int32  # [B] positions below it lie in shared blocks: nothing is written there
    logit_rows: Int32  # [N] indices into `kept` of the rows whose logits are wanted, ascending
    # tables
    new_slots: Int32  # slots given to a request in this step; their tables start anew
    new_slot_requests: Int64  # the request of each
    new_slot_cached: Int32  # how many of its tokens need no row, thanks to a prefix hit
    past_slot: Int32  # the last of those tokens, for the history of each new slot
    past_position: Int32
    past_token: Int32
    table_slot: Int32  # block-table entries set in this step: block_table[slot, index] = block
    table_index: Int32
    table_block: Int32
    max_end: int  # an upper bound on position + 1 over all rows
    preempted: Int64  # requests put back to waiting since the plan before


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did, for each segment that sampled, in plan order."""

    request: Int64  # [n]
    accepted: Int32  # [n] tokens appended, a stop token included; 0 when the request had ended or been preempted
    finish: Int32  # [n] FinishCode


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """Counts at this moment. free_blocks + used_blocks + cached_blocks == num_blocks always."""

    waiting: int
    running: int
    free_blocks: int
    used_blocks: int
    cached_blocks: int
    free_slots: int
    preemptions: int
    # since the start, over all admissions of requests with a cache key:
    queried_tokens: int = 0  # that a prefix hit could have covered
    hit_tokens: int = 0  # in blocks that were shared
    replayed_tokens: int = 0  # of these, computed again
    evictions: int = 0  # cached blocks that made room


class Scheduler(Protocol):
    """Continuous batching over slots and blocks. Not thread-safe: one thread calls it."""

    def add(self, request: SchedulerRequest) -> None:
        """Queue a request. Raises `RequestTooLarge` with both numbers when it can never fit."""

    def set_drafts(self, request: int, drafts: int) -> None:
        """Let the request's next decode segments carry at most `drafts` drafts; it starts with `max_drafts`."""

    def plan(self) -> StepPlan | None:
        """The next step, or None when nothing can run now. Plans may be made before earlier ones are committed."""

    def commit(self, step: int, tokens: Int32, counts: Int32) -> Committed:
        """Take a step's results, in order of steps. tokens [n, 1 + max_drafts], counts [n] (accepted + 1 each)."""

    def finish(self, request: int) -> None:
        """End a request early (a stop string, an abort). Slot and blocks return once no step in flight uses them.

        Nothing happens when it has already ended.
        """

    def forget(self, blocks: Sequence[int] | None = None) -> None:
        """Forget what cached blocks hold, all or these. Requests that use them go on."""

    def stats(self) -> SchedulerStats: ...

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
