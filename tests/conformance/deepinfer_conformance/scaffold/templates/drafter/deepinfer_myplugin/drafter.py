"""The drafter: proposes tokens that the engine then verifies. The contract is deepinfer_core/interfaces/drafter.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from deepinfer_core.interfaces.drafter import Proposal

if TYPE_CHECKING:
    from deepinfer_core.interfaces.model import CachePools, Model, StepInput
    from torch import Tensor

CHANCE = 0.1  # that a text repeats its last token


class MyPluginDrafter:
    """Proposes that each request repeats its newest token. Wrong drafts cost time and never change an answer."""

    max_drafts = 2

    def attach(self, model: Model, pools: CachePools) -> None:
        """Called once, before the first step. A drafter that reads the model's state keeps both here."""

    def propose(self, step: StepInput, last_tokens: Tensor, lengths: Tensor) -> Proposal:
        """last_tokens int64 [B] -> tokens int64 [B, max_drafts] and float32 chances. Runs on the device's queue, so it
        waits for nothing."""
        tokens = last_tokens[:, None].repeat(1, self.max_drafts)
        return Proposal(tokens, torch.full_like(tokens, CHANCE, dtype=torch.float32))
