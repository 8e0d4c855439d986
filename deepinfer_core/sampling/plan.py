"""SamplingPlan: what one step needs of sampling, as flat tensors made on the host by `SamplingTable.prepare`.

Data only. Row indices are int64 and point into the N rows that the step samples; parts that no row needs are None.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SlotValues:
    """The parameters of S slots that are numbers, side by side; each property is one of them, a tensor [S].

    The order of columns is that of `slot_values`.
    """

    numbers: Tensor  # float64 [S, 6]
    integers: Tensor  # int64 [S, 5]

    def at(self, slot: Tensor) -> SlotValues:
        """The values of the slots int64 [n]."""
        return SlotValues(self.numbers[slot], self.integers[slot])

    @property
    def temperature(self) -> Tensor:
        return self.numbers[:, 0].float()

    @property
    def top_p(self) -> Tensor:
        """float64, so that the user's decimals keep their meaning where probabilities tie."""
        return self.numbers[:, 1]

    @property
    def min_p(self) -> Tensor:
        return self.numbers[:, 2].float()

    @property
    def repetition(self) -> Tensor:
        return self.numbers[:, 3].float()

    @property
    def presence(self) -> Tensor:
        return self.numbers[:, 4].float()

    @property
    def frequency(self) -> Tensor:
        return self.numbers[:, 5].float()

    @property
    def top_k(self) -> Tensor:
        """0: off."""
        return self.integers[:, 0]

    @property
    def seed(self) -> Tensor:
        """The bit pattern of the unsigned 64-bit seed."""
        return self.integers[:, 1]

    @property
    def sample(self) -> Tensor:
        """Index of the answer among its request's n."""
        return self.integers[:, 2]

    @property
    def prompt_length(self) -> Tensor:
        return self.integers[:, 3]

    @property
    def min_tokens(self) -> Tensor:
        return self.integers[:, 4]


@dataclass(frozen=True, slots=True)
class CountResets:
    """Token counts of slots whose new requests have penalties: cleared, then these tokens are counted."""

    slots: Tensor  # int64 [P]
    prompt_slot: Tensor  # int64, the slot of each of prompt_token
    prompt_token: Tensor
    output_slot: Tensor  # int64, the slot of each of output_token, which resumed requests had generated
    output_token: Tensor


@dataclass(frozen=True, slots=True)
class SlotResets:
    """State of the slots given to a sequence in this step."""

    slots: Tensor  # int64 [S]
    values: SlotValues
    mask_slots: Tensor | None  # int64 [A] slots of requests that never allow some tokens
    masks: Tensor | None  # int32 [A, ceil(V/32)]
    counts: CountResets | None


@dataclass(frozen=True, slots=True)
class DrawGroup:
    """Rows that are drawn by one call of `sample_tokens`, and which of its filters any of them needs."""

    rows: Tensor | None  # None: all rows
    greedy: bool
    top_k: bool = False
    top_p: bool = False
    min_p: bool = False
    max_candidates: int | None = None


@dataclass(frozen=True, slots=True)
class RowTokens:
    """Pairs of a row and a token, each pair once."""

    row: Tensor
    token: Tensor


@dataclass(frozen=True, slots=True)
class TokenBias:
    """What is added to a row's token; each pair of row and token once."""

    row: Tensor
    token: Tensor
    value: Tensor  # float32


@dataclass(frozen=True, slots=True)
class BadWords:
    """M bad words of two tokens or more: `token` is banned in `row` where the tokens before it are `prefix`."""

    row: Tensor  # int64 [M]
    token: Tensor  # int64 [M]
    prefix: Tensor  # int64 [M, BAD_WORD_HISTORY]: nearest token first, -1 beyond the word's own length


@dataclass(frozen=True, slots=True)
class LogprobRows:
    """Rows whose logprobs are wanted, and the largest number of alternatives among them."""

    rows: Tensor
    k: int


@dataclass(frozen=True, slots=True)
class ProcessorRows:
    """Rows of requests that asked for a plugin's stage."""

    name: str
    rows: Tensor


@dataclass(frozen=True, slots=True)
class TokenMask:
    """What constraints allow in some of a step's rows. The tensors may still be on the host."""

    rows: Tensor  # int64 [M], each row at most once
    bits: Tensor  # int32 [M, ceil(V/32)]: bit v & 31 of word v >> 5 is 1 where token v may come


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """One step. The engine carries it from `SamplingTable.prepare` to `apply` and `Sampler.sample`, unopened."""

    resets: SlotResets | None = None
    groups: tuple[DrawGroup, ...] = ()
    bias: TokenBias | None = None
    penalised: Tensor | None = None
    masked: Tensor | None = None  # rows of requests that never allow some tokens
    stops: RowTokens | None = None  # ids that may not come before min_tokens
    bad_words: BadWords | None = None
    processors: tuple[ProcessorRows, ...] = ()
    logprobs: LogprobRows | None = None

    @property
    def changes_logits(self) -> bool:
        """Whether some row has a stage between the model's logits and the draw."""
        stages = (self.bias, self.penalised, self.masked, self.stops, self.bad_words)
        return bool(self.processors) or any(stage is not None for stage in stages)


def to_device(part: Any, device: torch.device) -> Any:
    """The same plan, or part of one, with its tensors on the device."""
    if isinstance(part, Tensor):
        return part.to(device, non_blocking=True)
    if isinstance(part, tuple):
        return tuple(to_device(item, device) for item in part)
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{f.name: to_device(getattr(part, f.name), device) for f in fields(part)})
    return part
