"""Inputs on which a kernel of a sampling op is compared with its reference. Logits are float32 whatever the dtype."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpCase
from deepinfer_core.ops.cases import Maker

_SIZES = (("no rows", 0, 96), ("one row", 1, 33), ("odd", 5, 301), ("large", 3, 20_011))


def token_mask(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """`apply_token_mask`: random words, whose bits beyond the vocabulary mean nothing."""
    make = Maker(device, torch.float32, seed)
    for name, n, vocab in _SIZES:
        words = make.integers(-(2**31), 2**31, n, -(-vocab // 32), dtype=torch.int32)
        yield OpCase(name, (_logits(make, n, vocab), words))


def penalties(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """`apply_penalties`: prompt and answer overlapping; factors on both sides of neutral."""
    make = Maker(device, torch.float32, seed)
    for name, n, vocab in _SIZES:
        seen = make.integers(0, 3, n, vocab) == 0
        counts = make.integers(-6, 4, n, vocab, dtype=torch.int32).clamp(min=0)
        repetition = make.integers(5, 20, n, dtype=torch.float32) / 10
        presence, frequency = make.integers(-20, 21, 2, n, dtype=torch.float32) / 10
        yield OpCase(name, (_logits(make, n, vocab), seen, counts, repetition, presence, frequency))


def sampling(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """`sample_tokens`: each filter alone and all together, with greedy and other rows in one batch."""
    make = Maker(device, torch.float32, seed)
    for name, n, vocab in _SIZES:
        logits = _logits(make, n, vocab)
        keys = (make.integers(-(2**63), 2**63 - 1, n), make.integers(0, 8, n), make.integers(0, 2**20, n))
        temperature = torch.tensor([0.7, 0.0, 1e-4, 1.0, 100.0], device=device)[:n]
        top_k = torch.tensor([5, 9, 1, 10 * vocab, 0], dtype=torch.int32, device=device)[:n]
        small = torch.tensor([5, 9, 1, 20, 3], dtype=torch.int32, device=device)[:n]
        top_p = torch.tensor([0.9, 0.5, 1.0, 0.99, 1e-9], dtype=torch.float64, device=device)[:n]
        min_p = torch.tensor([0.0, 0.1, 0.0, 0.05, 1.0], device=device)[:n]
        yield OpCase(f"{name}, greedy", (logits, None, None, None, None, *keys))
        yield OpCase(f"{name}, temperature", (logits, temperature, None, None, None, *keys))
        yield OpCase(f"{name}, min_p", (logits, temperature, None, None, min_p, *keys))
        yield OpCase(f"{name}, top_p", (logits, temperature, None, top_p, None, *keys))
        yield OpCase(f"{name}, top_k", (logits, temperature, small, None, None, *keys), {"max_candidates": 20})
        yield OpCase(f"{name}, all", (logits, temperature, top_k, top_p, min_p, *keys))


def logprobs(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """`top_logprobs`: none, one, some and all alternatives."""
    make = Maker(device, torch.float32, seed)
    for name, n, vocab in _SIZES:
        for k in (0, 1, 20):
            yield OpCase(f"{name}, k = {k}", (_logits(make, n, vocab), make.integers(0, vocab, n), k))
    yield OpCase("whole vocabulary", (_logits(make, 2, 33), make.integers(0, 33, 2), 33))


def drafts(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """`verify_drafts`: two-token vocabularies, so that runs of acceptance happen."""
    make = Maker(device, torch.float32, seed)
    for name, batch, length in (("no rows", 0, 3), ("no drafts", 4, 0), ("odd", 7, 5)):
        target, proposed = make.integers(0, 2, batch, 1 + length), make.integers(0, 2, batch, length)
        yield OpCase(name, (target, proposed, make.integers(0, length + 1, batch, dtype=torch.int32)))


def _logits(make: Maker, n: int, vocab: int) -> Tensor:
    """Random logits with ties, both zeros and -inf among them."""
    logits = (make.normal(n, vocab, scale=30.0)).round() / 10
    logits[:, 1::7] = -0.0
    logits[:, 2::7] = 0.0
    logits[:, 3::11] = -math.inf
    return logits
