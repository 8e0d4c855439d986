"""Matrix products with stored weights: linear, grouped_linear, embedding and lm_head, and their cases."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpCase, OpSpec, RowFormat, Weight, WeightFormat
from deepinfer_core.ops.cases import EXACT, SUMS, Maker
from deepinfer_core.ops.formats import dequantise, dequantise_rows
from deepinfer_core.ops.quant import fake_quant


def linear(x: Tensor, weight: Weight, quantise: bool, out_dtype: torch.dtype | None = None) -> Tensor:
    """x [T, K] times the transpose of weight [N, K] -> [T, N] in `out_dtype` (None: x's).

    With `quantise` and an fp8 or fp4 weight, x is first rounded to fp8 in blocks of 32 along K.
    """
    if quantise and weight.format in (WeightFormat.FP8, WeightFormat.FP4):
        x = fake_quant(x, RowFormat.FP8_E8M0_32)
    return (x.float() @ dequantise(weight).T).to(out_dtype or x.dtype)


def grouped_linear(x: Tensor, weight: Weight) -> Tensor:
    """x [T, G, K] -> [T, G, N]: group g is multiplied by rows g*N .. (g+1)*N - 1 of weight [G*N, K]."""
    groups = x.shape[1]
    matrices = torch.unflatten(dequantise(weight), 0, (groups, weight.out_features // groups))
    return torch.einsum("tgk,gnk->tgn", x.float(), matrices).to(x.dtype)


def embedding(tokens: Tensor, weight: Weight, dtype: torch.dtype) -> Tensor:
    """tokens [T] -> the rows of weight [V, D] in `dtype`. A negative id, as padding rows have, reads row 0."""
    return dequantise_rows(weight, tokens.clamp(min=0)).to(dtype)


def lm_head(x: Tensor, weight: Weight) -> Tensor:
    """Logits float32 [T, V] of x [T, D] under weight [V, D]; nothing is quantised."""
    return x.float() @ dequantise(weight).T


def linear_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Each weight format, with and without activation quantisation; zero rows, one row, an odd number of outputs."""
    make = Maker(device, dtype, seed)
    for format in WeightFormat:
        for rows, inner, outer in ((0, 64, 32), (1, 64, 33), (7, 160, 96)):
            x, weight = make.normal(rows, inner), make.weight(format, outer, inner)
            for quantise in (False, True):
                name = f"{format.value} {rows}x{inner}x{outer}{', quantised' if quantise else ''}"
                yield OpCase(name, (x, weight, quantise))
        x, weight = make.normal(3, 64), make.weight(format, 32, 64)
        yield OpCase(f"{format.value}, float32 out", (x, weight, True), {"out_dtype": torch.float32})


def grouped_linear_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Each weight format; zero rows, one group, an odd number of rows."""
    make = Maker(device, dtype, seed)
    for format in WeightFormat:
        for rows, groups, inner, outer in ((0, 2, 64, 32), (1, 1, 32, 32), (7, 3, 64, 32)):
            x, weight = make.normal(rows, groups, inner), make.weight(format, groups * outer, inner)
            yield OpCase(f"{format.value} {rows}x{groups}x{inner}x{outer}", (x, weight))


def embedding_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Each weight format; zero rows, repeated ids, a negative id."""
    make = Maker(device, dtype, seed)
    for format in WeightFormat:
        weight = make.weight(format, 77, 64)
        yield OpCase(f"{format.value}, no rows", (make.integers(0, 77, 0), weight, dtype))
        tokens = torch.tensor([76, 0, 33, 33, -1], device=device)
        yield OpCase(f"{format.value}, five rows", (tokens, weight, dtype))


def lm_head_cases(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]:
    """Unquantised weights and fp8; zero rows, odd vocabularies."""
    make = Maker(device, dtype, seed)
    for format in (WeightFormat.F32, WeightFormat.BF16, WeightFormat.FP8):
        for rows, dim, vocabulary in ((0, 64, 32), (1, 64, 501), (5, 128, 77)):
            args = (make.normal(rows, dim), make.weight(format, vocabulary, dim))
            yield OpCase(f"{format.value} {rows}x{dim}x{vocabulary}", args)


SPECS = (
    OpSpec("linear", "linear", linear, linear_cases, SUMS),
    OpSpec("grouped_linear", "linear", grouped_linear, grouped_linear_cases, SUMS),
    OpSpec("embedding", "linear", embedding, embedding_cases, EXACT),
    OpSpec("lm_head", "linear", lm_head, lm_head_cases, SUMS),
)
