"""Engram memory: hashes of the last n token classes, the table rows that they name, and the gate into the streams."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpCase, OpSpec, Weight, WeightFormat
from deepinfer_core.ops.cases import EXACT, SUMS, Maker
from deepinfer_core.ops.formats import WEIGHT_BLOCK, decode_e8m0


def hash_ngrams(classes: Tensor, multipliers: Tensor, primes: Tensor, offsets: Tensor, pad: int) -> Tensor:
    """classes [T, n] (of the token itself, the one before, ...) -> int64 table rows [T, (n-1)*h].

    A class of -1 and everything older counts as class `pad`. The hash of the last m classes is the xor of class *
    multiplier over them, for m = 2 .. n; each has h primes in `primes` [(n-1)*h], and its row for one of them is hash
    mod prime plus that prime's offset. multipliers [n], primes and offsets are int64.
    """
    order = classes.shape[1]
    dead = (classes < 0).long().cumsum(-1) > 0
    terms = torch.where(dead, pad, classes.long()) * multipliers
    heads = primes.shape[0] // (order - 1)
    rolling, columns = terms[:, 0], []
    for older in range(1, order):
        rolling = rolling ^ terms[:, older]
        columns.append(rolling[:, None].expand(-1, heads))
    return torch.cat(columns, dim=-1) % primes + offsets


def engram_lookup(table: Weight, index: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows `index` [T, C] of table [rows, d], rounded to bfloat16 -> [T, C*d] in `dtype`.

    An fp8 table has one scale for each 32 numbers of a row: scale [rows, d/32]. No other row is read.
    """
    index = index.long()
    if table.format is WeightFormat.FP8:
        assert table.scale is not None, "an fp8 table has scales"
        values = table.data.view(torch.uint8)[index].view(torch.float8_e4m3fn).float()
        rows = values * decode_e8m0(table.scale[index]).repeat_interleave(WEIGHT_BLOCK, dim=-1)
    else:
        assert table.format in (WeightFormat.F32, WeightFormat.BF16), f"no {table.format.value} tables"
        rows = table.data[index]
    return rows.bfloat16().flatten(1).to(dtype)


def engram_gate(streams: Tensor, key: Tensor, value: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float) -> Tensor:
    """Add value [T, D] to each stream of streams [T, n, D], gated by how well the stream matches its key.

    key [T, n*D], q_weight and k_weight [n, D]. The match is the dot product of the RMS-normalised stream and key over
    sqrt(D); the gate is sigmoid(sign * sqrt(|match|)), |match| at least 1e-6.
    """
    count, dim = streams.shape[1:]
    x, k = streams.float(), torch.unflatten(key.float(), -1, (count, dim))
    norms = torch.rsqrt(x.square().mean(-1) + eps) * torch.rsqrt(k.square().mean(-1) + eps)
    match = (x * (q_weight.float() * k_weight.float()) * k).sum(-1) * norms * dim**-0.5
    gate = torch.sigmoid(torch.copysign(match.abs().clamp(min=1e-6).sqrt(), match))
    return (x + gate[..., None] * value.float()[:, None]).to(streams.dtype)


def hash_ngrams_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Zero rows, n = 2 and 4, dead classes at every place, products near 2^63."""
    make = Maker(device, dtype, seed)
    for rows, primes in ((0, [101, 103, 107]), (9, [101, 103, 107]), (33, [16000057, 16000079, 16000081])):
        prime = torch.tensor(primes, device=device)
        offsets = prime.cumsum(0) - prime
        multipliers = make.integers(2**44, (2**63 - 1) // 99092, 4) | 1
        classes = make.integers(-1 if rows == 9 else 0, 99092, rows, 4)
        classes[:2, rows % 4 :] = -1
        yield OpCase(f"{rows} rows, primes from {primes[0]}", (classes, multipliers, prime, offsets, 2))
    pairs = (make.integers(0, 50, 5, 2), torch.tensor([3, 5], device=device), prime[:2], offsets[:2], 0)
    yield OpCase("pairs, two heads", pairs)


def engram_lookup_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Each table format; zero rows, repeated rows, the last row."""
    make = Maker(device, dtype, seed)
    fp8 = make.normal(61, 64, dtype=torch.float32).to(torch.float8_e4m3fn)
    scaled = Weight(fp8, WeightFormat.FP8, make.integers(115, 130, 61, 2, dtype=torch.uint8))
    tables = (scaled, make.weight(WeightFormat.BF16, 61, 64), make.weight(WeightFormat.F32, 61, 64))
    for table in tables:
        for rows in (0, 7):
            index = make.integers(0, 61, rows, 6)
            index[:1] = 60
            yield OpCase(f"{table.format.value}, {rows} rows", (table, index, dtype))


def engram_gate_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Zero rows, one stream, an odd width, keys of zeros."""
    make = Maker(device, dtype, seed)
    for rows, n, dim in ((0, 4, 32), (1, 1, 7), (5, 4, 128), (9, 3, 33)):
        key = make.normal(rows, n * dim) * (0 if rows == 1 else 1)
        weights = (1 + make.normal(n, dim, scale=0.1), 1 + make.normal(n, dim, scale=0.1))
        yield OpCase(f"{rows}x{n}x{dim}", (make.normal(rows, n, dim), key, make.normal(rows, dim), *weights, 1e-20))


SPECS = (
    OpSpec("hash_ngrams", "engram", hash_ngrams, hash_ngrams_cases, EXACT),
    OpSpec("engram_lookup", "engram", engram_lookup, engram_lookup_cases, EXACT),
    OpSpec("engram_gate", "engram", engram_gate, engram_gate_cases, SUMS),
)
