"""A sampler with its table and the history that an engine would keep, driven one step at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepinfer_core.api.params import SamplingParams
from deepinfer_core.interfaces.sampler import LogitsProcessor, Sampled
from deepinfer_core.ops.table import OpTable, resolve
from deepinfer_core.sampling.plan import SamplingPlan, TokenMask
from deepinfer_core.sampling.request import SlotSampling, request_sampling
from deepinfer_core.sampling.sampler import Sampler
from deepinfer_core.sampling.table import SamplingTable

CPU = torch.device("cpu")
HISTORY_ROWS = 9
NEVER = -1e30  # a finite logit that is never drawn


def ops() -> OpTable:
    return resolve({})


class Bench:
    """Slots hold requests; `step` samples a token for each of some slots and lets it enter their histories."""

    def __init__(
        self,
        vocab: int,
        slots: int = 8,
        logprobs_mode: Any = "raw",
        processors: Mapping[str, LogitsProcessor] | None = None,
    ) -> None:
        self.vocab = vocab
        self.table = SamplingTable(slots, vocab, CPU)
        self.sampler = Sampler(ops(), vocab, logprobs_mode, processors)
        self.history = torch.full((slots, HISTORY_ROWS), -7, dtype=torch.int64)
        self.length = [0] * slots
        self._new: list[SlotSampling] = []

    def give(
        self,
        slot: int,
        params: SamplingParams,
        *,
        prompt: Sequence[int] = (0,),
        output: Sequence[int] = (),
        seed: int = 0,
        sample: int = 0,
        **resolved: Any,
    ) -> None:
        """Put a request in a slot, from the next step on. `output`: what it had generated before a preemption."""
        request = request_sampling(params, seed=seed, vocab_size=self.vocab, **resolved)
        known = [*prompt, *output]
        for position, token in enumerate(known):
            self.history[slot, position % HISTORY_ROWS] = token
        self.length[slot] = len(known)
        tokens = (np.array(part, np.int32) for part in (prompt, output))
        self._new.append(SlotSampling(slot, request, sample, *tokens))

    def plan(self, slots: Sequence[int]) -> SamplingPlan:
        plan = self.table.prepare(self._new, np.array(slots, np.int32))
        self._new = []
        return plan

    def step(self, slots: Sequence[int], logits: Tensor, mask: TokenMask | None = None) -> Sampled:
        """Sample one token for each slot from logits [N, head rows]."""
        plan = self.plan(slots)
        self.table.apply(plan)
        position = torch.tensor([self.length[slot] for slot in slots], dtype=torch.int32)
        rows = self.table.rows(torch.tensor(slots, dtype=torch.int32), position)
        sampled = self.sampler.sample(logits, rows, self.table, plan, self.history, mask)
        for slot, token in zip(slots, sampled.tokens[:, 0].tolist(), strict=True):
            self.history[slot, self.length[slot] % HISTORY_ROWS] = token
            self.length[slot] += 1
        return sampled

    def run(self, slot: int, logits: Sequence[float], steps: int) -> list[int]:
        """The tokens of one slot that sees the same logits at every step."""
        row = torch.tensor([logits], dtype=torch.float32)
        return [int(self.step([slot], row).tokens[0, 0]) for _ in range(steps)]


GREEDY = SamplingParams(temperature=0.0)


def answer(logits: Sequence[float], steps: int, params: SamplingParams = GREEDY, **request: Any) -> list[int]:
    """What one request alone generates."""
    bench = Bench(len(logits))
    bench.give(3, params, **request)
    return bench.run(3, logits, steps)
