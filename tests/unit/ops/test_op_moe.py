"""Mixture of experts: routing order, the permutation, and the whole path against a loop over rows and choices."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from deepinfer_core.interfaces.ops import RowFormat, Weight, WeightFormat
from deepinfer_core.ops.formats import dequantise
from deepinfer_core.ops.moe import experts, gated_mlp, moe_combine, moe_permute, route
from deepinfer_core.ops.quant import fake_quant

PLAIN, FP4 = WeightFormat.F32, WeightFormat.FP4


def stack(count: int, out: int, inner: int, format: WeightFormat) -> Weight:
    if format is PLAIN:
        return Weight(torch.randn(count, out, inner) * inner**-0.5, PLAIN)
    data = torch.randint(0, 256, (count, out, inner // 2)).to(torch.uint8)
    return Weight(data, FP4, torch.randint(121, 125, (count, out, inner // 32)).to(torch.uint8))


def gate_for(scores: list[float]) -> Weight:
    """A gate whose scores for the input [1] are these."""
    logits = [[math.log(math.expm1(score * score))] for score in scores]
    return Weight(torch.tensor(logits), PLAIN)


def test_route_orders_by_biased_score_and_weighs_without_bias() -> None:
    bias = torch.tensor([0.0, 0.0, 3.0, 0.0])
    chosen, weights = route(torch.ones(1, 1), gate_for([1.0, 2.0, 0.5, 0.25]), bias, 2, 1.5)
    assert chosen.tolist() == [[2, 1]]
    assert chosen.dtype == torch.int32
    assert torch.allclose(weights, torch.tensor([[0.5 / 2.5 * 1.5, 2.0 / 2.5 * 1.5]]), atol=1e-5)


def test_route_breaks_ties_by_the_lower_id() -> None:
    chosen, _ = route(torch.zeros(3, 4), Weight(torch.randn(9, 4), PLAIN), torch.zeros(9), 4, 1.0)
    assert chosen.tolist() == [[0, 1, 2, 3]] * 3


def test_route_survives_scores_that_underflow() -> None:
    _, weights = route(torch.full((1, 1), -1000.0), Weight(torch.ones(4, 1), PLAIN), torch.zeros(4), 2, 1.5)
    assert weights.tolist() == [[0.0, 0.0]]


@given(st.integers(0, 30), st.integers(1, 6), st.integers(1, 9), st.integers(0, 2**31))
def test_permutation_sorts_stably_and_puts_padding_last(rows: int, top_k: int, count: int, seed: int) -> None:
    chosen = torch.randint(-2, count + 2, (rows, top_k), generator=torch.Generator().manual_seed(seed)).int()
    order, offsets = moe_permute(chosen, count)
    flat = chosen.flatten().tolist()
    expected = [[i for i, expert in enumerate(flat) if expert == e] for e in range(count)]
    padding = [i for i, expert in enumerate(flat) if not 0 <= expert < count]
    assert order.tolist() == [i for part in expected for i in part] + padding
    assert [b - a for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)] == [
        len(part) for part in expected
    ]
    assert offsets[0] == 0


@given(st.integers(0, 20), st.integers(1, 5), st.integers(0, 2**31))
def test_combine_undoes_the_permutation(rows: int, top_k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    order, _ = moe_permute(torch.randint(0, 4, (rows, top_k), generator=generator), 4)
    parts = torch.randn(rows, top_k, 3, generator=generator)
    combined = moe_combine(parts.flatten(0, 1)[order.long()], order, top_k)
    expected = torch.zeros(rows, 3)
    for choice in range(top_k):
        expected = expected + parts[:, choice]
    assert torch.equal(combined, expected)


def test_combine_adds_in_router_order_not_in_expert_order() -> None:
    order, _ = moe_permute(torch.tensor([[0, 2, 1]]), 3)
    parts = torch.tensor([[1e8], [1.0], [-1e8]])  # (1e8 + 1) - 1e8 is 0 in float32, (1e8 - 1e8) + 1 is 1
    assert moe_combine(parts[order.long()], order, 3).item() == 0.0


def mlp(x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, limit: float, weight: float, quantise: bool) -> Tensor:
    """One row through one expert, from the formula."""
    rounded = fake_quant(x, RowFormat.FP8_E8M0_32) if quantise else x
    gate, up = (w1 @ rounded).clamp(max=limit), (w3 @ rounded).clamp(-limit, limit)
    hidden = gate / (1 + torch.exp(-gate)) * up * weight
    return w2 @ (fake_quant(hidden, RowFormat.FP8_E8M0_32) if quantise else hidden)


@pytest.mark.parametrize("format", [PLAIN, FP4], ids=["plain", "fp4"])
@pytest.mark.parametrize("limit", [10.0, 0.3])
def test_experts_equal_a_loop_over_rows(format: WeightFormat, limit: float) -> None:
    rows, top_k, count, dim, width = 7, 3, 5, 64, 32
    x, weights = torch.randn(rows, dim), torch.rand(rows, top_k)
    chosen = torch.randint(0, count - 1, (rows, top_k)).int()  # the last expert has no rows
    chosen[2, 1], chosen[6, 0] = -1, count + 3
    w1, w3, w2 = stack(count, width, dim, format), stack(count, width, dim, format), stack(count, dim, width, format)
    order, offsets = moe_permute(chosen, count)
    quantise = format is FP4
    y = moe_combine(experts(x, order, offsets, weights, w1, w3, w2, limit, quantise), order, top_k)
    one, three, two = dequantise(w1), dequantise(w3), dequantise(w2)
    for t in range(rows):
        expected = torch.zeros(dim)
        for j in range(top_k):
            e = int(chosen[t, j])
            if 0 <= e < count:
                expected += mlp(x[t], one[e], three[e], two[e], limit, float(weights[t, j]), quantise)
        assert torch.allclose(y[t], expected, atol=1e-4)


def test_rows_beyond_the_last_expert_are_zero_whatever_their_input() -> None:
    x = torch.full((2, 32), float("nan"))
    order, offsets = moe_permute(torch.full((2, 2), -1), 3)
    w1, w2 = stack(3, 32, 32, PLAIN), stack(3, 32, 32, PLAIN)
    y = experts(x, order, offsets, torch.full((2, 2), float("nan")), w1, w1, w2, 10.0, False)
    assert torch.equal(y, torch.zeros(4, 32))


def test_an_expert_depends_on_its_own_rows_alone() -> None:
    x, order_of = torch.randn(4, 32), torch.tensor([[0], [1], [0], [1]])
    w1, w3, w2 = (stack(2, 32, 32, PLAIN) for _ in range(3))
    order, offsets = moe_permute(order_of, 2)
    clean = moe_combine(experts(x, order, offsets, torch.ones(4, 1), w1, w3, w2, 10.0, False), order, 1)
    x[1] = float("nan")
    dirty = moe_combine(experts(x, order, offsets, torch.ones(4, 1), w1, w3, w2, 10.0, False), order, 1)
    assert dirty[1].isnan().all()
    assert torch.equal(dirty[[0, 2, 3]], clean[[0, 2, 3]])


def test_gated_mlp_is_an_expert_of_weight_one() -> None:
    x = torch.randn(3, 64)
    w1, w3, w2 = stack(1, 32, 64, FP4), stack(1, 32, 64, FP4), stack(1, 64, 32, FP4)
    single = [Weight(w.data[0], FP4, w.scale[0]) for w in (w1, w3, w2) if w.scale is not None]
    y = gated_mlp(x, *single, 0.5, True)
    expected = [mlp(row, *(dequantise(w) for w in single), 0.5, 1.0, True) for row in x]
    assert torch.allclose(y, torch.stack(expected), atol=1e-4)
