"""Sampling by definition: the counter RNG in Python integers, the tokens that filters keep, and a test of frequencies.

Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_MASS = 2.0**34  # masses of top-p are whole multiples of 2**-34 of the best token's


def philox(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Ten rounds over four 32-bit words under a key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (second >> 32) ^ c1 ^ k0, second & _WORD, (first >> 32) ^ c3 ^ k1, first & _WORD
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def noise(seed: int, sample: int, position: int, token: int) -> float:
    """The Gumbel number that a token's score gets: float64, before it is rounded to float32."""
    word = philox((token // 4, position, 0, sample), (seed & _WORD, seed >> 32 & _WORD))[token % 4]
    return -math.log(-math.log((word + 0.5) / 2**32))


def support(logits: Sequence[float], temperature: float, top_k: int, top_p: float, min_p: float) -> set[int]:
    """The tokens that temperature, then top-k, then top-p, then min-p leave to the draw.

    top_k 0, top_p 1 and min_p 0 are "off". Ties fall to the lower id; top-k keeps exactly k.
    """
    best = max(logits)
    order = sorted((token for token in range(len(logits)) if logits[token] > -math.inf), key=lambda t: (-logits[t], t))
    order = order[: top_k or len(order)]
    mass = {token: math.exp((logits[token] - best) / temperature) for token in order}
    if top_p < 1:
        whole = {token: round(mass[token] * _MASS) for token in order}
        total, before, kept = sum(whole.values()), 0, []
        for token in order:
            if before < top_p * total:
                kept.append(token)
            before += whole[token]
        order = kept
    return {token for token in order if mass[token] >= min_p}


def chi_square(counts: Sequence[int], probabilities: Sequence[float]) -> float:
    """Pearson's statistic of counts under probabilities, none of which is 0."""
    total = sum(counts)
    return sum((n - total * p) ** 2 / (total * p) for n, p in zip(counts, probabilities, strict=True))


def chi_square_limit(freedom: int, deviations: float = 5.0) -> float:
    """What the statistic exceeds about once in 3.5 million draws (Wilson and Hilferty 1931), at five deviations."""
    return freedom * (1 - 2 / (9 * freedom) + deviations * math.sqrt(2 / (9 * freedom))) ** 3


def log_softmax(logits: Sequence[float]) -> list[float]:
    """In float64."""
    best = max(logits)
    total = math.log(math.fsum(math.exp(x - best) for x in logits))
    return [x - best - total for x in logits]
