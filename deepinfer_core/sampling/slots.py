"""SlotBook: the host's memory of what each slot's request uses, and the making of plans from it.

Host only. The numbers themselves live on the device, in `SamplingTable`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepinfer_core.sampling.plan import (
    BadWords,
    DrawGroup,
    LogprobRows,
    ProcessorRows,
    RowTokens,
    SamplingPlan,
    SlotResets,
    TokenBias,
)
from deepinfer_core.sampling.request import RequestSampling, SlotSampling

_MAX_CANDIDATES = 1024  # above this many, sorting the vocabulary is as fast as picking the best

Rows = NDArray[np.int64]


class _Use(IntEnum):
    """What a slot's request uses; values are bits."""

    BIAS = 1
    PENALTIES = 2
    MASK = 4
    STOPS = 8
    BAD_WORDS = 16
    PROCESSORS = 32
    LOGPROBS = 64
    TOP_P = 128
    MIN_P = 256


_FILTERS = _Use.TOP_P | _Use.MIN_P  # of the draw itself


class _Draw(IntEnum):
    """How a slot's rows are drawn; values are bits. Rows of one kind go to the op together and pay for no other's."""

    GREEDY = 1
    PLAIN = 2  # temperature and min-p
    CANDIDATES = 4  # a small top-k: only the best logits matter
    SORTED = 8  # top-p, or a large top-k


class SlotBook:
    """What the requests in `num_slots` slots use, for a vocabulary of `vocab_size` tokens."""

    def __init__(self, num_slots: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._requests: list[RequestSampling | None] = [None] * num_slots
        self._use = np.zeros(num_slots, np.int32)
        self._draw = np.zeros(num_slots, np.int32)
        self._top_k = np.zeros(num_slots, np.int32)
        self._logprobs = np.zeros(num_slots, np.int32)
        self._last: tuple[NDArray[np.int32], SamplingPlan] | None = None

    def set(self, entry: SlotSampling) -> None:
        """Remember a slot's new request."""
        request, slot = entry.request, entry.slot
        params = request.params
        top_k = params.top_k if 0 < params.top_k < self._vocab_size else 0
        self._requests[slot] = request
        self._use[slot] = _uses(request)
        self._top_k[slot] = top_k
        self._logprobs[slot] = params.logprobs or 0
        if params.greedy:
            self._draw[slot] = _Draw.GREEDY
        elif 0 < top_k <= _MAX_CANDIDATES:
            self._draw[slot] = _Draw.CANDIDATES
        else:
            self._draw[slot] = _Draw.SORTED if top_k or params.top_p < 1.0 else _Draw.PLAIN
        self._last = None

    def plan(self, slots: NDArray[np.int32], resets: SlotResets | None) -> SamplingPlan:
        """The plan of the rows whose slots are given. While the same slots go on decoding it stays the same."""
        if self._last is None or not np.array_equal(self._last[0], slots):
            self._last = (slots.copy(), self._make(slots))
        return replace(self._last[1], resets=resets) if resets else self._last[1]

    def _make(self, slots: NDArray[np.int32]) -> SamplingPlan:
        use = self._use[slots]
        groups = self._groups(slots, use)
        used = int(np.bitwise_or.reduce(use, initial=0))
        if not used & ~_FILTERS:
            return SamplingPlan(groups=groups)
        rows = {what: np.flatnonzero(use & what) for what in _Use if used & what}
        penalised, masked = rows.get(_Use.PENALTIES), rows.get(_Use.MASK)
        logprobs = rows.get(_Use.LOGPROBS)
        return SamplingPlan(
            groups=groups,
            bias=self._join(rows.get(_Use.BIAS), slots, TokenBias, lambda r: (r.bias_tokens, r.bias_values)),
            penalised=None if penalised is None else torch.from_numpy(penalised),
            masked=None if masked is None else torch.from_numpy(masked),
            stops=self._join(rows.get(_Use.STOPS), slots, RowTokens, lambda r: (r.stop_tokens,)),
            bad_words=self._join(rows.get(_Use.BAD_WORDS), slots, BadWords, lambda r: (r.bad_tokens, r.bad_prefixes)),
            processors=self._processors(rows.get(_Use.PROCESSORS), slots),
            logprobs=None
            if logprobs is None
            else LogprobRows(torch.from_numpy(logprobs), int(self._logprobs[slots[logprobs]].max())),
        )

    def _groups(self, slots: NDArray[np.int32], use: NDArray[np.int32]) -> tuple[DrawGroup, ...]:
        kinds = self._draw[slots]
        present = int(np.bitwise_or.reduce(kinds, initial=0))
        groups = []
        for kind in _Draw:
            if present == kind:
                groups.append(self._group(kind, None, slots, use))
            elif present & kind:
                rows = np.flatnonzero(kinds == kind)
                groups.append(self._group(kind, torch.from_numpy(rows), slots[rows], use[rows]))
        return tuple(groups)

    def _group(self, kind: _Draw, rows: Tensor | None, slots: NDArray[np.int32], use: NDArray[np.int32]) -> DrawGroup:
        if kind is _Draw.GREEDY:
            return DrawGroup(rows, greedy=True)
        used, top_k = int(np.bitwise_or.reduce(use)), int(self._top_k[slots].max())
        return DrawGroup(
            rows,
            greedy=False,
            top_k=top_k > 0,
            top_p=bool(used & _Use.TOP_P),
            min_p=bool(used & _Use.MIN_P),
            max_candidates=top_k if kind is _Draw.CANDIDATES else None,
        )

    def _request(self, slot: int) -> RequestSampling:
        request = self._requests[slot]
        assert request is not None, f"slot {slot} was never given to a request"
        return request

    def _join(
        self,
        rows: Rows | None,
        slots: NDArray[np.int32],
        make: Callable[..., Any],
        arrays: Callable[[RequestSampling], tuple[NDArray[Any], ...]],
    ) -> Any:
        """`make(row, *joined)`: the arrays of each row's request one after the other, and the row of each entry."""
        if rows is None:
            return None
        parts = [arrays(self._request(slot)) for slot in slots[rows].tolist()]
        row = np.repeat(rows, [len(part[0]) for part in parts])
        return make(*(torch.from_numpy(a) for a in (row, *map(np.concatenate, zip(*parts, strict=True)))))

    def _processors(self, rows: Rows | None, slots: NDArray[np.int32]) -> tuple[ProcessorRows, ...]:
        by_name: dict[str, list[int]] = {}
        for row in [] if rows is None else rows.tolist():
            for name in self._request(slots[row]).processors:
                by_name.setdefault(name, []).append(row)
        return tuple(ProcessorRows(name, torch.tensor(by_name[name])) for name in sorted(by_name))


def _uses(request: RequestSampling) -> int:
    params = request.params
    used = {
        _Use.BIAS: len(request.bias_tokens) > 0,
        _Use.PENALTIES: request.penalised,
        _Use.MASK: request.token_mask is not None,
        _Use.STOPS: len(request.stop_tokens) > 0,
        _Use.BAD_WORDS: len(request.bad_tokens) > 0,
        _Use.PROCESSORS: bool(request.processors),
        _Use.LOGPROBS: params.logprobs is not None,
        _Use.TOP_P: params.top_p < 1.0,
        _Use.MIN_P: params.min_p > 0.0,
    }
    return sum(use for use, on in used.items() if on)
