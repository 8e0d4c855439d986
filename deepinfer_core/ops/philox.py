"""Philox4x32-10, the counter-based generator behind every draw, and the Gumbel noise made from it.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Noise is a pure function of seed, sample index,
position, stream and token id, so a draw depends neither on its row nor on the device.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


class Stream(IntEnum):
    """What a number is drawn for. Streams of one position are independent of each other."""

    TARGET = 0  # the token; coupled drafters draw from it too
    DRAFT = 1  # a drafter's own proposals, in rejection mode
    ACCEPT = 2  # the acceptance test of rejection mode
    RESIDUAL = 3  # the token after a rejection


def philox4x32(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Ten rounds over 32-bit words held in int64 tensors, which broadcast together; four words come back.

    Products wrap modulo 2**64 as int64, which keeps all their bits. Within the rounds only the words that are about to
    be multiplied are cut to 32 bits: what lies above in the other two never comes down.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0 = ((p1 >> 32) ^ (c1 ^ k0)).bitwise_and_(_WORD)
        c2 = ((p0 >> 32) ^ (c3 ^ k1)).bitwise_and_(_WORD)
        c1, c3 = p1, p0
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1 & _WORD, c2, c3 & _WORD


def uniform(word: Tensor) -> Tensor:
    """float64 in (0, 1), never 0 or 1: (word + 0.5) / 2**32."""
    return word.double().add_(0.5).mul_(2.0**-32)


def gumbel_noise(seed: Tensor, sample: Tensor, position: Tensor, vocab: int, stream: Stream = Stream.TARGET) -> Tensor:
    """float32 [N, vocab]: -log(-log u) in float64, rounded once. seed, sample and position are integers [N]; the seed
    is the bit pattern of the unsigned 64-bit seed in an int64."""
    blocks = torch.arange(-(-vocab // 4), device=seed.device)
    words = torch.stack(_words(seed, sample, position, blocks[None], stream), dim=-1)
    return _gumbel(words.flatten(1)[:, :vocab])


def gumbel_noise_at(
    seed: Tensor, sample: Tensor, position: Tensor, tokens: Tensor, stream: Stream = Stream.TARGET
) -> Tensor:
    """float32 [N, k]: what `gumbel_noise` holds for the token ids int64 [N, k], without the rest."""
    words = torch.stack(_words(seed, sample, position, tokens >> 2, stream), dim=-1)
    return _gumbel(words.gather(-1, (tokens & 3)[..., None]).squeeze(-1))


def _words(seed: Tensor, sample: Tensor, position: Tensor, block: Tensor, stream: Stream) -> tuple[Tensor, ...]:
    """The four words of each counter (block, position, stream, sample) under each row's key: [N, m] each."""
    seed = seed.long()[:, None]
    counter = (block, position.long()[:, None], torch.full_like(seed, int(stream)), sample.long()[:, None])
    return philox4x32(counter, (seed & _WORD, (seed >> 32) & _WORD))


def _gumbel(word: Tensor) -> Tensor:
    return uniform(word).log_().neg_().log_().neg_().float()
