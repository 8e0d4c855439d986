"""A device in plain Python for the scheduler's tests. It runs step plans, remembers what was written to which place of
which block (the tokens up to there, and whom they may be shared with), and refuses a step whose rows would not read
back their own history."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from deepinfer_core.interfaces.scheduler import SchedulerLimits, SegmentKind, StepPlan

VOCABULARY = 7


def next_token(prefix: Sequence[int]) -> int:
    """The one token that follows a prefix, whatever the step, slot and neighbours."""
    return zlib.crc32(bytes(prefix)) % VOCABULARY


def guess(prefix: Sequence[int]) -> int:
    """A draft for the token after `prefix`: right about three times in four."""
    token = next_token(prefix)
    return token if zlib.crc32(bytes(prefix), 1) % 4 else (token + 1) % VOCABULARY


@dataclass
class SlotState:
    request: int
    key: object  # whom its blocks may be shared with
    tokens: list[int] = field(default_factory=list)  # prompt and samples; the newest has no cache yet when decoding
    table: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StepResult:
    tokens: np.ndarray  # int32 [n, 1 + max_drafts]
    counts: np.ndarray  # int32 [n]
    blocks: frozenset[int]  # touched by the step
    slots: frozenset[int]


class SimulatedDevice:
    """`beginning(request)`: its known tokens, and whom it may share blocks with."""

    def __init__(self, limits: SchedulerLimits, beginning: Callable[[int], tuple[list[int], object]]) -> None:
        self.limits = limits
        self.beginning = beginning
        self.slots: dict[int, SlotState] = {}
        self.cells: dict[tuple[int, int], tuple[object, tuple[int, ...]]] = {}  # (block, offset) -> key, tokens so far

    def run(self, plan: StepPlan) -> StepResult:
        self._update_tables(plan)
        blocks: set[int] = set()
        samples: list[list[int]] = []
        row = 0
        for segment in range(len(plan.request)):
            count = int(plan.num_rows[segment])
            state = self.slots[int(plan.slot[segment])]
            assert state.request == plan.request[segment], "the slot belongs to another request"
            given = [int(t) for t in plan.tokens[row : row + count]]
            if plan.kind[segment] == SegmentKind.DECODE:
                assert given == [-1] * count, "the device's own tokens are overridden"
                blocks |= self._decode(state, int(plan.first_position[segment]), count, samples)
            else:
                blocks |= self._prefill(state, int(plan.first_position[segment]), int(plan.write_start[segment]), given)
                if plan.kind[segment] == SegmentKind.PREFILL_LAST:
                    state.tokens.append(next_token(state.tokens))
                    samples.append(state.tokens[-1:])
            row += count
        return self._result(samples, blocks, plan)

    def _update_tables(self, plan: StepPlan) -> None:
        for slot, request, cached in zip(plan.new_slots, plan.new_slot_requests, plan.new_slot_cached, strict=True):
            tokens, key = self.beginning(int(request))
            self.slots[int(slot)] = SlotState(int(request), key, tokens[:cached])
            self._check_past(plan, int(slot), tokens[:cached])
        for slot, index, block in zip(plan.table_slot, plan.table_index, plan.table_block, strict=True):
            assert 0 <= block < self.limits.num_blocks
            self.slots[int(slot)].table[int(index)] = int(block)

    def _check_past(self, plan: StepPlan, slot: int, spared: list[int]) -> None:
        """The tokens just before a hit's first row are repeated, as many as the rules say."""
        wanted = self.limits.prefix.history_rows if self.limits.prefix else 0
        mine = plan.past_slot == slot
        positions = list(range(max(0, len(spared) - wanted), len(spared)))
        assert plan.past_position[mine].tolist() == positions, "the past does not end at the first row"
        assert plan.past_token[mine].tolist() == [spared[p] for p in positions], "the past is not the request's own"

    def _prefill(self, state: SlotState, first: int, write_start: int, tokens: list[int]) -> set[int]:
        assert first == len(state.tokens), "a chunk does not begin where the last one ended"
        state.tokens += tokens
        return self._write_and_read(state, state.tokens, max(first, write_start))

    def _decode(self, state: SlotState, first_at_most: int, count: int, samples: list[list[int]]) -> set[int]:
        first = len(state.tokens) - 1
        assert first <= first_at_most, "the device is ahead of the plan's upper bound"
        rows = state.tokens.copy()
        while len(rows) < first + count:
            rows.append(guess(rows))
        blocks = self._write_and_read(state, rows, first)
        length = first + 1
        while length < len(rows) and rows[length] == next_token(rows[:length]):
            length += 1
        state.tokens = [*rows[:length], next_token(rows[:length])]
        samples.append(state.tokens[first + 1 :])
        return blocks

    def _write_and_read(self, state: SlotState, tokens: list[int], first: int) -> set[int]:
        """Write the rows from `first` on, then read everything up to the last row, as its attention would."""
        size, table = self.limits.block_size, state.table
        for position in range(first, len(tokens)):
            place = (table[position // size], position % size)
            self.cells[place] = (state.key, tuple(tokens[: position + 1]))
        for position in range(len(tokens)):
            place = (table[position // size], position % size)
            wanted = (state.key, tuple(tokens[: position + 1]))
            assert self.cells.get(place) == wanted, "a row reads what is not its own history"
        return {table[position // size] for position in range(len(tokens))}

    def _result(self, samples: list[list[int]], blocks: set[int], plan: StepPlan) -> StepResult:
        tokens = np.full((len(samples), 1 + self.limits.max_drafts), -1, np.int32)
        for i, sample in enumerate(samples):
            tokens[i, : len(sample)] = sample
        counts = np.array([len(sample) for sample in samples], np.int32)
        return StepResult(tokens, counts, frozenset(blocks), frozenset(int(s) for s in plan.slot))
