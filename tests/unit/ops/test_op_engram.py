"""Engram: hashes against plain integer arithmetic, table rows against their bytes, the gate against its formula."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.interfaces.ops import Weight, WeightFormat
from deepinfer_core.ops.engram import engram_gate, engram_lookup, hash_ngrams

MULTIPLIERS = [76632096046245, 4839876093313, 35959672319349, 73987337458391]
PRIMES = [[16000057, 16000079], [16000081, 16000097], [101, 103]]


def expected_hashes(classes: list[int], pad: int) -> list[int]:
    """The definition in unbounded integers."""
    alive = [c if all(older >= 0 for older in classes[: k + 1]) else pad for k, c in enumerate(classes)]
    rolling, rows, offset = alive[0] * MULTIPLIERS[0], [], 0
    for n, primes in enumerate(PRIMES, start=1):
        rolling ^= alive[n] * MULTIPLIERS[n]
        assert 0 <= rolling < 2**63
        for prime in primes:
            rows.append(rolling % prime + offset)
            offset += prime
    return rows


@given(st.lists(st.lists(st.integers(-1, 99091), min_size=4, max_size=4), max_size=8), st.integers(0, 99091))
def test_hashes_equal_integer_arithmetic(classes: list[list[int]], pad: int) -> None:
    flat = torch.tensor([prime for group in PRIMES for prime in group])
    args = (torch.tensor(classes, dtype=torch.int64).view(-1, 4), torch.tensor(MULTIPLIERS), flat)
    rows = hash_ngrams(*args, flat.cumsum(0) - flat, pad)
    assert rows.tolist() == [expected_hashes(row, pad) for row in classes]


def test_everything_older_than_a_dead_class_is_padding() -> None:
    flat = torch.tensor([prime for group in PRIMES for prime in group])
    args = (torch.tensor(MULTIPLIERS), flat, flat.cumsum(0) - flat, 7)
    dead = hash_ngrams(torch.tensor([[5, -1, 123, 456]]), *args)
    assert torch.equal(dead, hash_ngrams(torch.tensor([[5, 7, 7, 7]]), *args))


def test_lookup_reads_a_scale_for_each_32_numbers_of_a_row() -> None:
    data = torch.randn(9, 64).to(torch.float8_e4m3fn)
    scale = torch.randint(120, 134, (9, 2)).to(torch.uint8)
    found = engram_lookup(Weight(data, WeightFormat.FP8, scale), torch.tensor([[8, 0, 3]]), torch.float32)
    expected = [float(data[r, c].float()) * 2.0 ** (int(scale[r, c // 32]) - 127) for r in (8, 0, 3) for c in range(64)]
    assert found.shape == (1, 192)
    assert found[0].tolist() == expected


def test_lookup_rounds_to_bfloat16() -> None:
    table = Weight(torch.tensor([[1.0 + 2.0**-10, 3.0]]), WeightFormat.F32)
    assert engram_lookup(table, torch.zeros(1, 1, dtype=torch.int64), torch.float32).tolist() == [[1.0, 3.0]]


def test_lookup_reads_no_other_row() -> None:
    table = Weight(torch.full((4, 32), float("nan")), WeightFormat.F32)
    table.data[2] = 1.0
    assert (engram_lookup(table, torch.full((2, 3), 2), torch.bfloat16) == 1).all()


def test_gate_of_one_row_step_by_step() -> None:
    streams, key, value = torch.randn(1, 2, 8), torch.randn(1, 16), torch.randn(1, 8)
    q_weight, k_weight = torch.randn(2, 8), torch.randn(2, 8)
    gated = engram_gate(streams, key, value, q_weight, k_weight, 1e-20)
    for n in range(2):
        x, k = streams[0, n].double(), key[0, 8 * n : 8 * n + 8].double()
        q_hat = x / x.square().mean().sqrt() * q_weight[n].double()
        k_hat = k / k.square().mean().sqrt() * k_weight[n].double()
        match = float(q_hat @ k_hat) / math.sqrt(8)
        gate = 1 / (1 + math.exp(-math.copysign(math.sqrt(max(abs(match), 1e-6)), match)))
        assert torch.allclose(gated[0, n].double(), x + gate * value[0].double(), atol=1e-5)


def test_a_key_of_zeros_half_opens_the_gate() -> None:
    streams, value = torch.randn(3, 2, 8), torch.randn(3, 8)
    gated = engram_gate(streams, torch.zeros(3, 16), value, torch.ones(2, 8), torch.ones(2, 8), 1e-20)
    assert torch.allclose(gated, streams + value[:, None] / (1 + math.exp(-1e-3)), atol=1e-6)
