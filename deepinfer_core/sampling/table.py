"""SamplingTable: per-slot sampling state, in a host half that plans and a device half that holds the numbers.

`prepare` runs on the host while a step is built and touches no device. Everything else runs on the execution queue, in
the order of the steps, and touches nothing that `prepare` writes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepinfer_core.interfaces.sampler import SampledRows
from deepinfer_core.sampling.plan import CountResets, SamplingPlan, SlotValues, to_device
from deepinfer_core.sampling.request import SlotSampling
from deepinfer_core.sampling.resets import INTEGERS, NUMBERS, slot_resets
from deepinfer_core.sampling.slots import SlotBook


class SamplingTable:
    """State of `num_slots` slots for a vocabulary of `vocab_size` tokens (the tokenizer's: those that may be sampled).

    The way of a step, where the engine has `plan: StepPlan`::

        # host, while it builds the step
        sampling = table.prepare([SlotSampling(slot, ...) for each of plan.new_slots], slots of the sampled rows)
        # queue
        table.apply(sampling)
        logits = model.forward(...)
        sampled = sampler.sample(logits, table.rows(slot, position), table, sampling, history, mask)

    Token counts and masks take memory from the first request that needs them on.
    """

    def __init__(self, num_slots: int, vocab_size: int, device: torch.device) -> None:
        self._book = SlotBook(num_slots, vocab_size)
        self._num_slots = num_slots
        self._vocab_size = vocab_size
        self._device = device
        self.values = SlotValues(
            numbers=torch.zeros(num_slots, NUMBERS, dtype=torch.float64, device=device),
            integers=torch.zeros(num_slots, INTEGERS, dtype=torch.int64, device=device),
        )
        self._prompt_seen: Tensor | None = None  # bool [slots, V]
        self._counts: Tensor | None = None  # int32 [slots, V], generated tokens
        self._masks: Tensor | None = None  # int32 [slots, ceil(V/32)]

    def prepare(self, new_slots: Sequence[SlotSampling], sampled_slots: NDArray[np.int32]) -> SamplingPlan:
        """Host: the plan of one step. Steps are prepared in the order in which they will run.

        `new_slots`: the slots given to a sequence in this step, new or resumed. `sampled_slots` int32 [N]: the slot of
        each row to be sampled, in the order of its logits.
        """
        for entry in new_slots:
            self._book.set(entry)
        resets = slot_resets(new_slots, self._vocab_size) if new_slots else None
        return self._book.plan(sampled_slots, resets)

    def apply(self, plan: SamplingPlan) -> None:
        """Queue: set the state of the plan's new slots. Before `rows` and `Sampler.sample` of the same step."""
        if plan.resets is None:
            return
        resets = to_device(plan.resets, self._device)
        self.values.numbers[resets.slots] = resets.values.numbers
        self.values.integers[resets.slots] = resets.values.integers
        if resets.masks is not None:
            if self._masks is None:
                words = resets.masks.shape[1]
                self._masks = torch.zeros(self._num_slots, words, dtype=torch.int32, device=self._device)
            self._masks[resets.mask_slots] = resets.masks
        if resets.counts is not None:
            self._reset_counts(resets.counts)

    def rows(self, slot: Tensor, position: Tensor) -> SampledRows:
        """Queue: describe N rows. Integers [N]: each row's slot, and the position that its sampled token will have."""
        slot = slot.long()
        return SampledRows(slot, position, position - self.values.at(slot).prompt_length)

    def masks(self, slot: Tensor) -> Tensor:
        """Queue: int32 [n, ceil(V/32)], the tokens that requests in these slots allow at all."""
        assert self._masks is not None, "a plan with masked rows follows one that set their masks"
        return self._masks[slot]

    def token_counts(self, slot: Tensor) -> tuple[Tensor, Tensor]:
        """Queue: (prompt seen bool [n, V], generated counts int32 [n, V]) of requests with penalties."""
        assert self._prompt_seen is not None, "penalised slots set their counts first"
        assert self._counts is not None
        return self._prompt_seen[slot], self._counts[slot]

    def count(self, slot: Tensor, tokens: Tensor) -> None:
        """Queue: count generated tokens int64 [n], of requests with penalties in the slots int64 [n]."""
        assert self._counts is not None, "penalised slots set their counts first"
        one = torch.ones((), dtype=torch.int32, device=self._device)
        self._counts.index_put_((slot, tokens), one, accumulate=True)

    def _reset_counts(self, resets: CountResets) -> None:
        if self._prompt_seen is None or self._counts is None:
            shape = (self._num_slots, self._vocab_size)
            self._prompt_seen = torch.zeros(shape, dtype=torch.bool, device=self._device)
            self._counts = torch.zeros(shape, dtype=torch.int32, device=self._device)
        self._prompt_seen[resets.slots] = False
        self._prompt_seen[resets.prompt_slot, resets.prompt_token] = True
        self._counts[resets.slots] = 0
        self.count(resets.output_slot, resets.output_token)
