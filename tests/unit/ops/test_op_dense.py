"""Norm, rope, hyper-connections and linear ops against their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.interfaces.ops import RowFormat, Weight, WeightFormat
from deepinfer_core.ops.formats import dequantise
from deepinfer_core.ops.hyper_connection import hc_collapse, hc_expand, hc_mixes
from deepinfer_core.ops.linear import embedding, grouped_linear, linear, lm_head
from deepinfer_core.ops.norm import rms_norm
from deepinfer_core.ops.quant import fake_quant
from deepinfer_core.ops.rope import apply_rope


def test_rms_norm_of_known_numbers() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    expected = torch.tensor([[2 * 3 / math.sqrt(12.5), 4 / math.sqrt(12.5)], [0.0, 0.0]])
    assert torch.allclose(rms_norm(x, torch.tensor([2.0, 1.0]), 1e-20), expected)


def test_rms_norm_is_rounded_once() -> None:
    x, weight = torch.randn(4, 64).bfloat16(), torch.randn(64).bfloat16()
    wide = rms_norm(x.float(), weight.float(), 1e-6)
    assert torch.equal(rms_norm(x, weight, 1e-6), wide.bfloat16())


def test_rope_turns_adjacent_pairs_of_the_last_numbers() -> None:
    x = torch.tensor([[7.0, 1.0, 0.0, 0.0, 2.0]])
    turned = apply_rope(x, torch.tensor([3]), torch.tensor([0.5, 0.1]))
    expected = [7.0, math.cos(1.5), math.sin(1.5), -2 * math.sin(0.3), 2 * math.cos(0.3)]
    assert torch.allclose(turned, torch.tensor([expected]))


@given(first=st.integers(0, 5000), second=st.integers(0, 5000), shift=st.integers(0, 500))
def test_rope_products_depend_on_distance_alone(first: int, second: int, shift: int) -> None:
    inv_freq = 100.0 ** -(torch.arange(4) / 4)
    pair = torch.randn(2, 8, generator=torch.Generator().manual_seed(first), dtype=torch.float32)
    here = apply_rope(pair, torch.tensor([first, second]), inv_freq)
    there = apply_rope(pair, torch.tensor([first + shift, second + shift]), inv_freq)
    assert torch.allclose(here[0] @ here[1], there[0] @ there[1], atol=2e-2)


def test_rope_inverse_undoes_it_for_every_head() -> None:
    x, position, inv_freq = torch.randn(5, 3, 32), torch.arange(5) * 77, 1e4 ** -(torch.arange(8) / 8)
    turned = apply_rope(x, position, inv_freq)
    assert torch.allclose(apply_rope(turned, position, inv_freq, inverse=True), x, atol=1e-5)
    assert torch.equal(turned[:, 1], apply_rope(x[:, 1], position, inv_freq))


def mixes(rows: int = 6, n: int = 4, dim: int = 16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    fn, base = torch.randn((2 + n) * n, n * dim) * 0.1, torch.randn((2 + n) * n) * 0.5
    return torch.randn(rows, n, dim), fn, base, 1 + 0.1 * torch.randn(3)


def test_hc_mixes_of_one_row_step_by_step() -> None:
    streams, fn, base, scale = mixes(rows=1, n=2, dim=4)
    base, eps = 4 * base, 0.01
    flat = streams.flatten().double()
    m = (fn.double() @ flat) / torch.sqrt((flat * flat).mean() + 1e-20)
    factor = scale.double().repeat_interleave(torch.tensor([2, 2, 4]))
    m = m * factor + base.double()
    pre, post, comb = hc_mixes(streams, fn, base, scale, 1e-20, eps, 2)
    assert torch.allclose(pre[0].double(), 1 / (1 + torch.exp(-m[:2])) + eps, atol=1e-6)
    assert torch.allclose(post[0].double(), 2 / (1 + torch.exp(-m[2:4])), atol=1e-6)
    matrix = torch.exp(m[4:].view(2, 2))
    matrix = matrix / matrix.sum(1, keepdim=True) + eps
    for axis in (0, 1, 0):
        matrix = matrix / (matrix.sum(axis, keepdim=True) + eps)
    assert torch.allclose(comb[0].double(), matrix, atol=1e-6)


def test_hc_comb_is_nearly_doubly_stochastic() -> None:
    _, _, comb = hc_mixes(*mixes(), 1e-20, 1e-6, 20)
    assert torch.allclose(comb.sum(1), torch.ones(6, 4), atol=1e-4)
    assert torch.allclose(comb.sum(2), torch.ones(6, 4), atol=1e-2)
    assert (comb > 0).all()


def test_hc_one_round_normalises_columns_last() -> None:
    _, _, comb = hc_mixes(*mixes(), 1e-20, 1e-6, 1)
    assert torch.allclose(comb.sum(1), torch.ones(6, 4), atol=1e-5)
    assert not torch.allclose(comb.sum(2), torch.ones(6, 4), atol=1e-3)


def test_hc_collapse_weighs_the_streams() -> None:
    streams = torch.randn(3, 4, 8)
    one_hot = torch.tensor([[0.0, 0.0, 1.0, 0.0]]).expand(3, 4)
    assert torch.equal(hc_collapse(streams, one_hot), streams[:, 2])
    assert torch.allclose(hc_collapse(streams, torch.full((3, 4), 0.25)), streams.mean(1), atol=1e-6)


def test_hc_expand_sums_over_the_first_index_of_comb() -> None:
    streams, y = torch.randn(1, 3, 5), torch.randn(1, 5)
    post, comb = torch.randn(1, 3), torch.randn(1, 3, 3)
    expanded = hc_expand(y, streams, post, comb)
    for k in range(3):
        expected = post[0, k] * y[0] + sum(comb[0, j, k] * streams[0, j] for j in range(3))
        assert torch.allclose(expanded[0, k], expected, atol=1e-5)


def fp8(out: int, inner: int) -> Weight:
    scale = torch.randint(122, 126, (-(-out // 32), -(-inner // 32))).to(torch.uint8)
    return Weight(torch.randn(out, inner).to(torch.float8_e4m3fn), WeightFormat.FP8, scale)


def fp4(out: int, inner: int) -> Weight:
    data = torch.randint(0, 256, (out, inner // 2)).to(torch.uint8)
    return Weight(data, WeightFormat.FP4, torch.randint(122, 126, (out, inner // 32)).to(torch.uint8))


@pytest.mark.parametrize("weight", [fp8(40, 64), fp4(40, 64)], ids=["fp8", "fp4"])
def test_linear_rounds_activations_for_quantised_weights_only_when_asked(weight: Weight) -> None:
    x = torch.randn(3, 64)
    exact = x @ dequantise(weight).T
    rounded = fake_quant(x, RowFormat.FP8_E8M0_32) @ dequantise(weight).T
    assert torch.allclose(linear(x, weight, quantise=False), exact, atol=1e-5)
    assert torch.allclose(linear(x, weight, quantise=True), rounded, atol=1e-5)
    assert not torch.allclose(exact, rounded, atol=1e-3)


def test_linear_never_rounds_activations_for_plain_weights() -> None:
    x, weight = torch.randn(3, 64), Weight(torch.randn(8, 64).bfloat16(), WeightFormat.BF16)
    assert torch.equal(linear(x, weight, quantise=True), linear(x, weight, quantise=False))


def test_linear_accepts_an_inner_size_that_is_no_multiple_of_the_block() -> None:
    x, weight = torch.randn(3, 40), fp8(33, 40)
    rounded = torch.cat([fake_quant(x[:, :32], RowFormat.FP8_E8M0_32), fake_quant(x[:, 32:], RowFormat.FP8_E8M0_32)], 1)
    assert torch.allclose(linear(x, weight, quantise=True), rounded @ dequantise(weight).T, atol=1e-5)


def test_linear_output_types() -> None:
    x, weight = torch.randn(3, 64).bfloat16(), fp8(40, 64)
    wide = linear(x, weight, quantise=False, out_dtype=torch.float32)
    assert wide.dtype == torch.float32
    assert torch.equal(linear(x, weight, quantise=False), wide.bfloat16())


def test_grouped_linear_multiplies_each_group_by_its_own_rows() -> None:
    x, weight = torch.randn(5, 2, 64), fp8(64, 64)
    y = grouped_linear(x, weight)
    for group in range(2):
        rows = dequantise(weight)[32 * group : 32 * group + 32]
        assert torch.allclose(y[:, group], x[:, group] @ rows.T, atol=1e-5)


def test_embedding_and_head_share_the_meaning_of_a_row() -> None:
    weight = Weight(torch.eye(6).bfloat16(), WeightFormat.BF16)
    tokens = torch.tensor([5, 0, 3])
    rows = embedding(tokens, weight, torch.float32)
    assert torch.equal(rows, torch.eye(6)[tokens])
    assert torch.equal(embedding(torch.tensor([-1]), weight, torch.float32), torch.eye(6)[:1])
    assert torch.equal(lm_head(rows, weight).argmax(-1), tokens)
    assert lm_head(rows.bfloat16(), weight).dtype == torch.float32
