"""Engram: a memory of n-grams. Hashes of the last tokens pick table rows, a gate lets them into the streams."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from dense_v41 import quantise
from dense_v41.config import DenseConfig
from dense_v41.layers import Fp8Matrix
from dense_v41.quantise import Quantisation, wide


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def table_primes(config: DenseConfig) -> dict[int, list[int]]:
    """For each Engram layer its table sizes, n-gram length by length and head by head.

    Each is the least prime from `engram_vocab_size` on that no other table of the model has.
    """
    taken: set[int] = set()
    sizes: dict[int, list[int]] = {layer: [] for layer in config.engram_layer_ids}
    for layer in config.engram_layer_ids:
        for _ in range((config.engram_max_ngram_size - 1) * config.engram_n_heads):
            candidate = config.engram_vocab_size
            while candidate in taken or not _is_prime(candidate):
                candidate += 1
            taken.add(candidate)
            sizes[layer].append(candidate)
    return sizes


def multipliers(config: DenseConfig, layer: int) -> list[int]:
    """One odd multiplier for each of the last tokens; their products with a class stay below 2**63."""
    bound = max(1, (2**63 - 1) // config.engram_compressed_vocab_size // 2)
    draw = np.random.default_rng(10007 * layer).integers(0, bound, size=config.engram_max_ngram_size, dtype=np.int64)
    return [2 * int(value) + 1 for value in draw]


class Table(nn.Module):
    """The rows of all tables of one layer, in FP8 with one scale for 32 numbers."""

    def __init__(self, rows: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, size))


class Engram(nn.Module):
    """One layer's memory. `classes` maps token ids to the classes that the hash sees."""

    classes: Tensor
    multipliers: Tensor
    sizes: Tensor
    offsets: Tensor

    def __init__(self, config: DenseConfig, layer: int, classes: Tensor, quantisation: Quantisation) -> None:
        super().__init__()
        c, self.config, self.quantisation = config, config, quantisation
        primes = table_primes(config)[layer]
        self.embed = Table(sum(primes), c.engram_head_dim)
        self.wkv = Fp8Matrix(len(primes) * c.engram_head_dim, (c.hc_mult + 1) * c.hidden_size, quantisation)
        self.q_weight = nn.Parameter(torch.ones(c.hc_mult, c.hidden_size))
        self.k_weight = nn.Parameter(torch.ones(c.hc_mult, c.hidden_size))
        sizes = torch.tensor(primes)
        self.register_buffer("classes", classes, persistent=False)
        self.register_buffer("multipliers", torch.tensor(multipliers(config, layer)), persistent=False)
        self.register_buffer("sizes", sizes.view(c.engram_max_ngram_size - 1, -1), persistent=False)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes, persistent=False)

    def table_rows(self, ids: Tensor) -> Tensor:
        """ids int64 [B, T] -> row numbers [B, T, (n-1) * heads]. Before the start stands the padding token."""
        pad = self.classes[self.config.engram_pad_token_id]
        classes, length = self.classes[ids], ids.shape[1]
        mixed = classes * self.multipliers[0]
        rows = []
        for back in range(1, len(self.multipliers)):
            earlier = torch.cat((pad.expand(len(ids), back), classes), 1)[:, :length]
            mixed = mixed ^ (earlier * self.multipliers[back])
            rows.append(mixed.unsqueeze(-1) % self.sizes[back - 1])
        return torch.cat(rows, -1) + self.offsets

    def forward(self, streams: Tensor, ids: Tensor) -> Tensor:
        """streams [B, K, n, D] of the last K of the ids [B, T] -> streams with the memory's values added."""
        n, hidden = self.config.hc_mult, self.config.hidden_size
        found = self.embed.weight[self.table_rows(ids)[:, -streams.shape[1] :]]
        if self.quantisation.weights:
            found = quantise.fp8(found)
        mapped = wide(self.wkv(found.flatten(-2).to(streams.dtype)))
        key, value = mapped.split((n * hidden, hidden), -1)
        key, x = key.unflatten(-1, (n, hidden)), wide(streams)
        dot = (x * (wide(self.q_weight) * wide(self.k_weight)) * key).sum(-1) * hidden**-0.5
        dot = dot * self._inverse_rms(x) * self._inverse_rms(key)
        gate = torch.sigmoid(torch.copysign(dot.abs().clamp_min(1e-6).sqrt(), dot))
        return (x + gate.unsqueeze(-1) * value.unsqueeze(-2)).to(streams.dtype)

    def _inverse_rms(self, x: Tensor) -> Tensor:
        return torch.rsqrt(x.square().mean(-1) + self.config.rms_norm_eps)
