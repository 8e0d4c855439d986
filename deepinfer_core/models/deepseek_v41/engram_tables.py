"""The constants of the n-gram tables: prime moduli, row offsets and hash multipliers.

They follow from the configuration alone and are part of the checkpoint format, though no file holds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import isqrt

import numpy as np

MULTIPLIER_SEED = 10007  # times the layer


@dataclass(frozen=True, slots=True)
class HashConstants:
    """One table's constants, for n-gram lengths 2, 3, ... and within each length for its heads."""

    multipliers: tuple[int, ...]  # [max n-gram size]; odd, below 2^63 / classes
    primes: tuple[int, ...]  # [lengths * heads]
    offsets: tuple[int, ...]  # [lengths * heads] first table row of each modulus


def hash_constants(layer: int, primes: tuple[int, ...], ngram: int, classes: int) -> HashConstants:
    """The constants of the table of `layer`."""
    bound = max(1, np.iinfo(np.int64).max // classes // 2)
    drawn = np.random.default_rng(MULTIPLIER_SEED * layer).integers(0, bound, size=(ngram,), dtype=np.int64)
    offsets = tuple(accumulate(primes[:-1], initial=0))
    return HashConstants(tuple(int(value) * 2 + 1 for value in drawn), primes, offsets)


def table_primes(tables: int, lengths: int, heads: int, start: int) -> list[tuple[int, ...]]:
    """The moduli of each table: for each n-gram length the next `heads` primes from `start` that no table has yet."""
    used: set[int] = set()
    found = []
    for _ in range(tables):
        primes: list[int] = []
        for _ in range(lengths):
            candidate = start
            for _ in range(heads):
                while candidate in used or not _is_prime(candidate):
                    candidate += 1
                used.add(candidate)
                primes.append(candidate)
        found.append(tuple(primes))
    return found


def table_rows(tables: int, lengths: int, heads: int, start: int) -> tuple[int, ...]:
    """Rows of each table: one for each value of each of its moduli."""
    return tuple(sum(primes) for primes in table_primes(tables, lengths, heads, start))


def _is_prime(number: int) -> bool:
    if number < 4:
        return number > 1
    return number % 2 == 1 and all(number % divisor for divisor in range(3, isqrt(number) + 1, 2))
