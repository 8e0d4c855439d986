"""The seam for speculation: a drafter proposes, the core verifies and decides how much to verify."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from deepinfer_core.interfaces.model import CachePools, Model, StepInput


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafts for B requests. The core draws with the request's own noise, so tokens must use it too (coupled mode)."""

    tokens: Tensor  # int64 [B, drafts]
    confidence: Tensor  # float32 [B, drafts]: estimated chance that draft j is accepted given that those before it are


class Drafter(Protocol):
    """Proposes tokens on the device, right after a step's tokens were verified."""

    @property
    def max_drafts(self) -> int: ...

    def attach(self, model: Model, pools: CachePools) -> None:
        """Called once, before the first step."""

    def propose(self, step: StepInput, last_tokens: Tensor, lengths: Tensor) -> Proposal:
        """last_tokens int64 [B], lengths int32 [B]: each request's newest token and its position."""
