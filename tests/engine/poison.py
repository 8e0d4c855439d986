"""Poison for caches: before every step of an engine, whatever no live request has written is filled with NaN bytes.

0xFF is NaN in float32, bfloat16 and float8, and makes NaN of every scale. A kernel that reads a row that it must not,
even to multiply it by zero, gives NaN where a clean run gives a number.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from deepinfer_core.engine.engine import Engine
from deepinfer_core.interfaces.cache import CacheSpec, PagedSpec, RingSpec
from deepinfer_core.interfaces.model import CachePools, StepInput
from deepinfer_core.interfaces.scheduler import Committed, FinishCode, StepPlan

if TYPE_CHECKING:
    from deepinfer_core.interfaces.scheduler import Int32

POISON = 0xFF
NO_TOKEN = -(1 << 40)  # in the history of slots that nobody has: looking it up anywhere is an error

Live = dict[int, int]  # slot -> tokens at its beginning whose entries lie in blocks that others wrote


class Poisoner:
    """Stands between an engine and its scheduler, to know who lives, and its model, to poison before each forward."""

    def __init__(self, engine: Engine, spec: CacheSpec, *, keep_filled: bool = False, too_much: int = 0) -> None:
        """`keep_filled`: blocks that a request has filled stay as they are until they are given out anew, as a prefix
        cache may still want them. `too_much`: so many of the last tokens of a live request are poisoned as well."""
        parts: Any = engine._parts
        self._spec = spec
        self._inner = parts.scheduler
        self._calls = {name: getattr(parts.scheduler, name) for name in ("plan", "commit", "finish")}
        for name in self._calls:
            setattr(parts.scheduler, name, getattr(self, name))
        self._model, parts.runner._model = parts.runner._model, self
        self._tables, self._sampling = parts.runner._tables, parts.runner._sampling
        self._keep_filled = keep_filled
        self._too_much = too_much
        self._slots: dict[int, int] = {}  # request -> slot
        self._shared: Live = {}
        self._planned: deque[tuple[Live, list[int]]] = deque()  # of each step between its plan and its forward
        self._filled: set[int] = set()
        self.rows = 0  # poisoned so far

    # what the engine calls on its own thread

    def plan(self) -> StepPlan | None:
        plan: StepPlan | None = self._calls["plan"]()
        if plan is not None:
            for request in plan.preempted.tolist():
                self._slots.pop(request, None)
            self._slots.update(zip(plan.new_slot_requests.tolist(), plan.new_slots.tolist(), strict=True))
            self._shared.update(zip(plan.slot.tolist(), plan.write_start.tolist(), strict=True))
            fresh = plan.table_index * self._inner.limits.block_size >= self._write_starts(plan)
            live = {slot: self._shared.get(slot, 0) for slot in self._slots.values()}
            self._planned.append((live, plan.table_block[fresh].tolist()))
        return plan

    def _write_starts(self, plan: StepPlan) -> Int32:
        """Of the slot of each block-table entry that the plan sets."""
        return torch.tensor([self._shared.get(slot, 0) for slot in plan.table_slot.tolist()], dtype=torch.int32).numpy()

    def commit(self, step: int, tokens: Int32, counts: Int32) -> Committed:
        committed: Committed = self._calls["commit"](step, tokens, counts)
        for request, code in zip(committed.request.tolist(), committed.finish.tolist(), strict=True):
            if code != FinishCode.NONE:
                self._slots.pop(request, None)
        return committed

    def finish(self, request: int) -> None:
        self._calls["finish"](request)
        self._slots.pop(request, None)

    # what the runner calls on the queue

    def forward(self, step: StepInput, pools: CachePools) -> Tensor:
        live, fresh = self._planned.popleft()
        self._filled -= set(fresh)
        self.poison_unused(pools, live)
        logits: Tensor = self._model.forward(step, pools)
        self._remember_filled(step, pools, live)
        return logits

    def _remember_filled(self, step: StepInput, pools: CachePools, live: Live) -> None:
        """Blocks that live requests have filled, this step's rows included."""
        for slot, shared in live.items():
            rows = step.rows.position[step.rows.slot == slot]
            end = max(shared, int(self._tables.length[slot]), *(rows + 1).tolist())
            self._filled.update(self._tables.block_table[slot, : end // pools.block_size].tolist())

    def poison_unused(self, pools: CachePools, live: Live) -> None:
        """Poison every block, ring row, scratch row and table row that holds nothing of a live slot."""
        written = {slot: max(0, int(self._tables.length[slot]) - self._too_much) for slot in live}
        for paged in self._spec.paged:
            self._fill(pools.paged[paged.name], self._entries(pools, paged, live, written))
        for ring in self._spec.rings:
            self._fill(pools.rings[ring.name], self._ring_rows(pools, ring, written))
        self._poison_tables(torch.tensor([slot for slot in range(pools.slots) if slot not in live], dtype=torch.int64))

    def _entries(self, pools: CachePools, paged: PagedSpec, live: Live, written: dict[int, int]) -> Tensor:
        """bool [rows of the pool]: whole entries of live slots, and kept blocks."""
        used = torch.zeros(len(pools.paged[paged.name]), dtype=torch.bool)
        block_rows = pools.block_size // paged.ratio
        for slot, shared in live.items():
            entry = torch.arange(max(written[slot], shared) // paged.ratio)
            block = self._tables.block_table[slot, entry // block_rows].long()
            used[block * block_rows + entry % block_rows] = True
        for block in self._filled if self._keep_filled else ():
            used[block * block_rows : (block + 1) * block_rows] = True
        return used

    def _ring_rows(self, pools: CachePools, ring: RingSpec, written: dict[int, int]) -> Tensor:
        """bool [rows of the pool]: the last tokens of live slots. Scratch rows, at the end, are never among them."""
        used = torch.zeros(len(pools.rings[ring.name]), dtype=torch.bool)
        of_slot = used[: ring.layers * pools.slots * ring.rows].view(ring.layers, pools.slots, ring.rows)
        for slot, tokens in written.items():
            of_slot[:, slot, torch.arange(max(0, tokens - ring.rows), tokens) % ring.rows] = True
        return used

    def _fill(self, pool: Tensor, used: Tensor) -> None:
        pool[~used] = POISON
        self.rows += int((~used).sum())

    def _poison_tables(self, dead: Tensor) -> None:
        """What the device knows of slots that nobody has."""
        self._tables.history[dead] = NO_TOKEN
        self._sampling.values.numbers[dead] = torch.nan
        for counted in (self._sampling._prompt_seen, self._sampling._counts):
            if counted is not None:
                counted[dead] = 1
        if self._sampling._masks is not None:
            self._sampling._masks[dead] = 0


def poison_every_step(engine: Engine, **options: Any) -> Poisoner:
    """Poison an engine from now on: it must be idle. The poisoner counts the rows that it has filled."""
    parts: Any = engine._parts
    return Poisoner(engine, parts.runner._model.cache_spec(), **options)
