"""The processor: a stage between penalties and the constraint mask.

The contract is deepinfer_core/interfaces/sampler.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from deepinfer_core.interfaces.sampler import SampledRows
    from torch import Tensor

MARGIN = 5.0  # in units of logits: e^5 is a chance of about 1 to 150


class MyPluginStage:
    """Never draws a token whose logit is more than MARGIN below the best one."""

    def apply(self, logits: Tensor, rows: SampledRows) -> Tensor:
        """float32 [n, V] -> the same shape. A row's result depends on that row alone: answers may not depend on their
        neighbours. Runs on the device's queue, so it waits for nothing."""
        if logits.shape[0] == 0:
            return logits
        best = logits.max(dim=-1, keepdim=True).values
        return logits.masked_fill(logits < best - MARGIN, -torch.inf)
