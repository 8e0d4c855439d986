"""The n-gram memory of one layer: hash the last tokens, look their rows up, gate them into the streams."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.model import StepInput
from deepinfer_core.models.deepseek_v41.engram_tables import HashConstants
from deepinfer_core.models.deepseek_v41.runtime import Runtime
from deepinfer_core.models.deepseek_v41.weights import EngramWeights


class TokenClasses:
    """Classes of a row's token and of the ones before it; every table of the model hashes the same ones."""

    def __init__(self, runtime: Runtime, class_of: Tensor) -> None:
        self._runtime = runtime
        self._class_of = class_of  # int64 [vocab]

    def __call__(self, step: StepInput) -> Tensor:
        """int64 [T, max n-gram size]; -1 before the start of a sequence."""
        size = self._runtime.config.history_rows + 1
        tokens = self._runtime.ops.gather_history(step.tokens, step.rows, step.history, size)
        return torch.where(tokens >= 0, self._class_of[tokens.clamp(min=0)], -1)


class Engram:
    """One layer's table."""

    def __init__(self, runtime: Runtime, constants: HashConstants, pad: int, weights: EngramWeights) -> None:
        device = weights.q_weight.device
        self._runtime = runtime
        self._multipliers, self._primes, self._offsets = (
            torch.tensor(numbers, dtype=torch.int64, device=device)
            for numbers in (constants.multipliers, constants.primes, constants.offsets)
        )
        self._pad = pad  # the class that stands for what is not there
        self._weights = weights

    def __call__(self, streams: Tensor, classes: Tensor) -> Tensor:
        """streams [T, n, D], classes int64 [T, max n-gram size] -> streams."""
        ops, config, w = self._runtime.ops, self._runtime.config, self._weights
        index = ops.hash_ngrams(classes, self._multipliers, self._primes, self._offsets, self._pad)
        rows = ops.engram_lookup(w.table, index, self._runtime.dtype)
        both = ops.linear(rows, w.wkv, self._runtime.quantise)
        keys = config.hc_mult * config.hidden_size
        return ops.engram_gate(streams, both[:, :keys], both[:, keys:], w.q_weight, w.k_weight, config.rms_norm_eps)
