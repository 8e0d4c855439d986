"""How fast this machine reads memory: the floor under everything that streams weights."""

from __future__ import annotations

import time

import torch

READ_BYTES = 256 << 20  # well beyond any cache
REPEATS = 5


def read_bandwidth(device: torch.device) -> float:
    """Bytes a second of the best of a few sums over a large float32 tensor, with torch's threads."""
    x = torch.ones(READ_BYTES // 4, device=device)
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        float(x.sum())  # float() waits for the device
        best = min(best, time.perf_counter() - start)
    return READ_BYTES / best
