"""What the parts of a model are built with: the ops, the configuration and the engine's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.models.deepseek_v41.caches import Caches
from deepinfer_core.models.deepseek_v41.config import DeepseekV41Config

if TYPE_CHECKING:
    import torch

    from deepinfer_core.ops.table import OpTable


@dataclass(frozen=True, slots=True)
class Runtime:
    """Shared by all layers."""

    ops: OpTable
    config: DeepseekV41Config
    caches: Caches
    dtype: torch.dtype  # of activations
    quantise: bool  # activations, as the checkpoint's format defines
