"""One step on the execution queue: prologue, forward, sampling, epilogue. Nothing here waits for the host or device."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

import torch

from deepinfer_core.interfaces.model import StepInput
from deepinfer_core.interfaces.ops import Rows
from deepinfer_core.interfaces.sampler import Sampled
from deepinfer_core.sampling.sampler import Scores

if TYPE_CHECKING:
    from torch import Tensor

    from deepinfer_core.engine.step import HostStep, SegmentFields, StepFields
    from deepinfer_core.engine.tables import DeviceTables
    from deepinfer_core.interfaces.model import CachePools, Model
    from deepinfer_core.sampling.plan import TokenMask
    from deepinfer_core.sampling.sampler import Sampler
    from deepinfer_core.sampling.table import SamplingTable

Results = TypeVar("Results", Sampled, Scores)


@dataclass(frozen=True, slots=True)
class Span:
    """When a stretch of work ran on the queue, in time.perf_counter_ns()."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class _Forwarded:
    """A step between its forward and its sampling."""

    step: HostStep
    fields: StepFields[Tensor]  # int64
    position: Tensor  # int64 [n], of each sampled row
    logits: Tensor  # float32 [N, head rows]
    span: Span


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step's results in host memory, complete once its event is."""

    sampled: Sampled
    prompt: Scores | None
    spans: tuple[Span, Span]


class Runner:
    """Runs steps in the order in which they are submitted: `run`, or `forward` and then `sample`, on the queue only."""

    def __init__(
        self,
        model: Model,
        pools: CachePools,
        tables: DeviceTables,
        sampler: Sampler,
        sampling: SamplingTable,
        device: torch.device,
    ) -> None:
        self._model = model
        self._pools = pools
        self._tables = tables
        self._sampler = sampler
        self._sampling = sampling
        self._device = device
        self._forwarded: _Forwarded | None = None

    def run(self, step: HostStep) -> StepResult:
        """A whole step without constraints."""
        self.forward(step)
        return self.sample(None)

    @torch.inference_mode()
    def forward(self, step: HostStep) -> None:
        """Up to the logits. The step's prompt tokens are in the history afterwards."""
        start = time.perf_counter_ns()
        of_row, fields = step.unpack(self._device)
        self._tables.apply(fields)
        self._sampling.apply(step.sampling)
        rows, tokens = self._prologue(of_row, fields)
        given = StepInput(
            tokens=tokens,
            rows=rows,
            kept=fields.kept,
            kept_rows=_kept_rows(rows, of_row, fields.kept),
            write_start=of_row.write_start,
            logit_rows=fields.logit_rows,
            block_table=self._tables.block_table,
            history=self._tables.history,
            max_end=step.max_end,
        )
        logits = self._model.forward(given, self._pools)
        self._tables.remember_prompt(fields)
        sampled = fields.kept[fields.logit_rows[fields.sample_logit]]
        position = rows.position[sampled].long()
        self._forwarded = _Forwarded(step, fields, position, logits, Span("forward", start, time.perf_counter_ns()))

    @torch.inference_mode()
    def sample(self, mask: TokenMask | None) -> StepResult:
        """Draw the tokens, score prompts, advance the tables. `mask`: what constraints allow."""
        start = time.perf_counter_ns()
        forwarded, self._forwarded = self._forwarded, None
        assert forwarded is not None, "a step is sampled right after its forward"
        step, fields, logits, position = forwarded.step, forwarded.fields, forwarded.logits, forwarded.position
        prompt = None
        if len(fields.prompt_logit):
            prompt = self._sampler.score(logits[fields.prompt_logit], fields.prompt_target, step.prompt.k)
        sampled = self._sampler.sample(
            logits[fields.sample_logit],
            self._sampling.rows(fields.sample_slot, position + 1),
            self._sampling,
            step.sampling,
            self._tables.history,
            mask,
        )
        # One row a segment. A drafter's tokens would be compared here, and `counts` would be what verify_drafts says.
        self._tables.advance(fields, position, sampled.tokens, sampled.counts)
        return StepResult(
            sampled=_to_host(sampled),
            prompt=None if prompt is None else _to_host(prompt),
            spans=(forwarded.span, Span("sample", start, time.perf_counter_ns())),
        )

    def _prologue(self, of_row: SegmentFields[Tensor], fields: StepFields[Tensor]) -> tuple[Rows, Tensor]:
        """Positions and tokens, from the plan for prefill and from the device's tables for decode."""
        decode, slot = of_row.decode.bool(), of_row.slot.long()
        start = torch.where(decode, self._tables.length[slot], of_row.start)
        rows = Rows(
            slot=of_row.slot,
            position=start + fields.offset.int(),
            first_position=start,
            first_row=of_row.first_row,
            last_position=start + of_row.last_offset,
            floor=of_row.floor,
        )
        return rows, torch.where(decode, self._tables.last_tokens(slot), fields.token)


def _kept_rows(rows: Rows, of_row: SegmentFields[Tensor], kept: Tensor) -> Rows:
    """The rows that run the decoder half. Their windows look no lower than the request's decoder start."""
    first_position = rows.first_position + of_row.kept_first_offset
    whole = (rows.slot, rows.position, first_position, of_row.kept_first_row, rows.last_position, of_row.decoder_floor)
    return Rows(*torch.stack(whole).index_select(1, kept))


def _to_host(results: Results) -> Results:
    """The same dataclass with its tensors on the way to host memory."""
    tensors = {field.name: getattr(results, field.name) for field in fields(results)}
    return replace(results, **{name: t.to("cpu", non_blocking=True) for name, t in tensors.items() if t is not None})
