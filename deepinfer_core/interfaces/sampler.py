"""What sampling needs to know of each row, and the seam for a plugin's own logits processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Where each of N rows being sampled stands; int32/int64 tensors [N] on the device."""

    slot: Tensor
    position: Tensor  # position that the sampled token will have
    generated: Tensor  # tokens that the request has generated before this one


class LogitsProcessor(Protocol):
    """A plugin's stage between penalties and the constraint mask. Sees only rows of requests that asked for it."""

    def apply(self, logits: Tensor, rows: SampledRows) -> Tensor:
        """float32 [n, V] -> the same shape. A row's result may depend on that row alone.

        Called on the queue. When it raises, the rows are shown again one by one: requests fail alone.
        """


@dataclass(frozen=True, slots=True)
class Sampled:
    """A step's samples, on the device until its event completes."""

    tokens: Tensor  # int64 [n, 1 + max_drafts]
    counts: Tensor  # int32 [n]
    failed: Tensor  # bool [n]: no token was allowed, or a logit was NaN
    logprob: Tensor | None  # float32 [n, 1 + max_drafts] of the chosen tokens
    rank: Tensor | None  # int32, the same shape
    top_ids: Tensor | None  # int64 [n, 1 + max_drafts, k]
    top_logprobs: Tensor | None  # float32, the same shape
