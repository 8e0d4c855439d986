"""Rotary frequencies: plain for layers with a window only, stretched by YaRN for layers with compressed entries.

YaRN: arXiv 2309.00071, without its attention scaling.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from deepinfer_core.models.deepseek_v41.config import DeepseekV41Config, YarnConfig


def inverse_frequencies(config: DeepseekV41Config, ratio: int) -> Tensor:
    """Radians a position, float32 [qk_rope_head_dim / 2], for a layer of this compression ratio."""
    theta = config.compress_rope_theta if ratio else config.rope_theta
    dim = config.qk_rope_head_dim
    plain = 1 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
    return _stretch(plain, theta, config.yarn) if ratio and config.yarn else plain


def _stretch(plain: Tensor, theta: float, yarn: YarnConfig) -> Tensor:
    """Divide the slow frequencies by the factor, keep the fast ones, and blend in between."""
    dim = 2 * plain.shape[0]
    low = max(math.floor(_pair_of(yarn.beta_fast, theta, dim, yarn)), 0)
    high = min(math.ceil(_pair_of(yarn.beta_slow, theta, dim, yarn)), dim - 1)
    ramp = (torch.arange(dim // 2, dtype=torch.float32) - low) / max(high - low, 1e-3)
    share = ramp.clamp(0, 1)
    return plain / yarn.factor * share + plain * (1 - share)


def _pair_of(rotations: float, theta: float, dim: int, yarn: YarnConfig) -> float:
    """The (fractional) pair that turns this many times over the original context."""
    length = yarn.original_max_position_embeddings
    return dim * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(theta))
