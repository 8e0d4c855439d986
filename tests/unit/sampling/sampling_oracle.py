"""The draw once more, in Python numbers and independent of the engine: Philox by integers, filters by sorting lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

MASK = 0xFFFFFFFF


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Philox4x32-10 as its paper writes it."""
    x, k = list(counter), list(key)
    for round_index in range(10):
        if round_index:
            k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
        first, second = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(second >> 32) ^ x[1] ^ k[0], second & MASK, (first >> 32) ^ x[3] ^ k[1], first & MASK]
    return x


def gumbel(seed: int, sample: int, position: int, token: int, stream: int = 0) -> float:
    words = philox([token // 4, position, stream, sample], [seed & MASK, seed >> 32])
    return -math.log(-math.log((words[token % 4] + 0.5) / 2**32))


def support(logits: Sequence[float], temperature: float, top_k: int, top_p: float, min_p: float) -> list[int]:
    """Token ids that may be drawn, best first."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if temperature < 1e-5:
        return order[:1]
    if 0 < top_k < len(order):
        order = order[:top_k]
    weights = [math.exp((logits[token] - logits[order[0]]) / temperature) for token in order]
    if top_p < 1.0:
        kept = 1
        while math.fsum(weights[:kept]) < top_p * math.fsum(weights):
            kept += 1
        order, weights = order[:kept], weights[:kept]
    return [token for token, weight in zip(order, weights, strict=True) if weight >= min_p and weight > 0.0]


def draw(
    logits: Sequence[float],
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 0,
    sample: int = 0,
    position: int = 0,
) -> int:
    kept = support(logits, temperature, top_k, top_p, min_p)
    if len(kept) == 1:
        return kept[0]
    return max(kept, key=lambda token: (logits[token] / temperature + gumbel(seed, sample, position, token), -token))


def log_softmax(logits: Sequence[float]) -> np.ndarray:
    values = np.asarray(logits, np.float64)
    shifted = values - values.max()
    return shifted - np.log(np.exp(shifted).sum())
