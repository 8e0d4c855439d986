"""Drives a model's forward step by step as the engine does, with tables of its own. For tests of models alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from deepinfer_core.cache.layout import CacheRequest, fit_cache
from deepinfer_core.cache.pools import allocate_pools
from deepinfer_core.interfaces.model import Model, ModelContext, ModelOptions, StepInput
from deepinfer_core.interfaces.ops import Rows
from deepinfer_core.interfaces.parallel import Group
from deepinfer_core.models.deepseek_v41.factory import DeepseekV41Factory
from deepinfer_core.ops.table import OpTable, resolve
from deepinfer_core.parallel.communicator import OneRankCommunicator
from deepinfer_core.parallel.placement import IdentityPlacement
from deepinfer_cpu.kernels import kernels

CPU = torch.device("cpu")


def load_model(folder: Path, quantise: bool, dtype: torch.dtype = torch.float32, ops: OpTable | None = None) -> Model:
    """The checkpoint in `folder` on one rank; on the CPU backend's kernels unless other ops are given."""
    config = json.loads((folder / "config.json").read_text())
    factory = DeepseekV41Factory()
    context = ModelContext(
        ops=resolve(kernels()) if ops is None else ops,
        device=CPU,
        expert_communicator=OneRankCommunicator(Group("ep")),
        placement=IdentityPlacement(factory.inspect(folder, config).num_experts),
        options=ModelOptions(dtype=dtype, activation_quant=quantise),
    )
    return factory.load(folder, config, context)


@dataclass
class Chunk:
    """Tokens that one request adds in a step. Rows from `decoder_start` on run the decoder half and give logits."""

    slot: int
    tokens: Sequence[int]
    decoder_start: int = 0
    wanted: bool = True  # logits of its kept rows


@dataclass
class Driver:
    """Tables and pools for one model. Slots begin empty; blocks are handed out in a scattered order."""

    model: Model
    slots: int = 4
    max_length: int = 192
    block_size: int = 16
    step_tokens: int = 256
    poison: int | None = 0xFF  # what every byte of the pools holds before the first step
    padding: int = 0  # padding rows at the end of every step
    lengths: list[int] = field(init=False)

    def __post_init__(self) -> None:
        spec = self.model.cache_spec()
        per_slot = -(-self.max_length // self.block_size)
        request = CacheRequest(
            slots=self.slots,
            block_size=self.block_size,
            step_tokens=self.step_tokens + self.padding,
            max_length=self.max_length,
            cache_tokens=self.slots * per_slot * self.block_size,
            memory_share=1.0,
            free_bytes=1 << 34,
        )
        self.pools = allocate_pools(spec, fit_cache(spec, request), CPU)
        if self.poison is not None:
            for pool in (*self.pools.paged.values(), *self.pools.rings.values()):
                pool.fill_(self.poison)
        scattered = torch.randperm(self.slots * per_slot, generator=torch.Generator().manual_seed(3))
        self.block_table = scattered.to(torch.int32).view(self.slots, per_slot)
        self.history = torch.full((self.slots, self.model.info.history_rows + 3), 7, dtype=torch.int64)
        self.lengths = [0] * self.slots

    def start(self, slot: int) -> None:
        """Give the slot to a new request. Its caches keep what the old one left."""
        self.lengths[slot] = 0

    def step(self, chunks: Sequence[Chunk]) -> list[Tensor]:
        """Run one step; the logits [rows wanted, vocab] of each chunk. Lengths and history advance."""
        rows = _rows([(c.slot, self.lengths[c.slot], len(c.tokens), 0) for c in chunks], self.padding)
        firsts = [max(self.lengths[c.slot], c.decoder_start) for c in chunks]
        ends = [self.lengths[c.slot] + len(c.tokens) for c in chunks]
        kept_spans = [
            (c.slot, min(first, end), max(0, end - first), c.decoder_start)
            for c, first, end in zip(chunks, firsts, ends, strict=True)
        ]
        kept_rows = _rows(kept_spans, self.padding)
        tokens = torch.tensor([t for c in chunks for t in c.tokens] + [0] * self.padding, dtype=torch.int64)
        wanted = [c.wanted for c, span in zip(chunks, kept_spans, strict=True) for _ in range(span[2])]
        step = StepInput(
            tokens=tokens,
            rows=rows,
            kept=self._kept(chunks, kept_spans),
            kept_rows=kept_rows,
            logit_rows=torch.tensor([i for i, want in enumerate(wanted) if want], dtype=torch.int64),
            block_table=self.block_table,
            history=self.history,
            write_start=torch.zeros(len(tokens), dtype=torch.int32),
            max_end=max(ends, default=0),
        )
        logits = self.model.forward(step, self.pools)
        self._advance(chunks)
        return list(logits.split([span[2] if c.wanted else 0 for c, span in zip(chunks, kept_spans, strict=True)]))

    def _kept(self, chunks: Sequence[Chunk], spans: Sequence[tuple[int, int, int, int]]) -> Tensor:
        kept, row = [], 0
        for chunk, span in zip(chunks, spans, strict=True):
            row += len(chunk.tokens)
            kept += range(row - span[2], row)
        return torch.tensor(kept + list(range(row, row + self.padding)), dtype=torch.int64)

    def _advance(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            for token in chunk.tokens:
                self.history[chunk.slot, self.lengths[chunk.slot] % self.history.shape[1]] = token
                self.lengths[chunk.slot] += 1

    def prefill(self, slot: int, tokens: Sequence[int], chunk: int, decoder_start: int = 0) -> Tensor:
        """Run a prompt in chunks; the logits [kept rows, vocab]."""
        self.start(slot)
        parts = [
            self.step([Chunk(slot, tokens[at : at + chunk], decoder_start)])[0] for at in range(0, len(tokens), chunk)
        ]
        return torch.cat(parts)

    def greedy(self, slot: int, prompt: Sequence[int], count: int, chunk: int) -> list[int]:
        """`count` tokens, each the most likely after those before it."""
        last = self.prefill(slot, prompt, chunk)[-1]
        answer = [int(last.argmax())]
        while len(answer) < count:
            answer.append(int(self.step([Chunk(slot, answer[-1:])])[0][-1].argmax()))
        return answer


def _rows(spans: Iterable[tuple[int, int, int, int]], padding: int) -> Rows:
    """Rows of (slot, first position, rows, floor) spans, then padding rows."""
    columns: list[list[int]] = [[] for _ in range(6)]
    for slot, first, count, floor in spans:
        first_row = len(columns[0])
        for offset in range(count):
            fields = (slot, first + offset, first, first_row, first + count - 1, floor)
            for column, value in zip(columns, fields, strict=True):
                column.append(value)
    for _ in range(padding):
        for column, value in zip(columns, (-1, 0, 0, 0, 0, 0), strict=True):
            column.append(value)
    return Rows(*(torch.tensor(column, dtype=torch.int32) for column in columns))
