"""What a plugin may not change of the program that it is loaded into."""

from __future__ import annotations

import hashlib
import os
import signal
import warnings
from typing import Any

import torch


def describe_program() -> dict[str, Any]:
    """torch's defaults and random state, the environment, the signal handlers: equal before and after."""
    return {
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "random state": hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest(),
        "environment": hashlib.sha256(repr(sorted(os.environ.items())).encode()).hexdigest(),
        "working directory": os.getcwd(),
        "interrupt handler": repr(signal.getsignal(signal.SIGINT)),
        "warning filters": len(warnings.filters),
    }
