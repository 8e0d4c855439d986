"""The draw: which tokens may come, in what proportion, and that it depends on nothing but its own row."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sampling_oracle import draw, support
from torch import Tensor

from deepinfer_core.api import params
from deepinfer_core.ops import sample
from deepinfer_core.ops.sample import filtered_scores, sample_tokens

OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}

settings_of_a_row = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 1e-12, 1e-4, 0.3, 1.0, 3.0]),
        "top_k": st.sampled_from([-1, 0, 1, 3, 20, 9_999_999]),
        "top_p": st.sampled_from([1e-9, 0.2, 0.7, 0.95, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05, 0.5, 1.0]),
        "seed": st.integers(0, 2**63 - 1),
        "sample": st.integers(0, 4),
        "position": st.integers(0, 100_000),
    }
)


COLUMNS = {
    "temperature": torch.float32,
    "top_k": torch.int32,
    "top_p": torch.float64,
    "min_p": torch.float32,
    "seed": torch.int64,
    "sample": torch.int32,
    "position": torch.int32,
}


def arguments(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    whole = [OFF | {"seed": 0, "sample": 0, "position": 0} | row for row in rows]
    return {name: torch.tensor([row[name] for row in whole], dtype=dtype) for name, dtype in COLUMNS.items()}


def drawn(logits: Tensor, rows: list[dict[str, Any]], **more: Any) -> list[int]:
    return sample_tokens(logits, **(arguments(rows) | more)).tolist()


def kept(logits: list[float], **setting: Any) -> list[int]:
    """The ids that survive the filters."""
    given_ = arguments([setting])
    filters = {name: given_[name] for name in ("temperature", "top_k", "top_p", "min_p")}
    return filtered_scores(torch.tensor([logits]), **filters)[0].isfinite().nonzero().flatten().tolist()


def random_logits(rows: int, vocab: int, seed: int) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def test_greedy_begins_at_the_same_temperature_everywhere() -> None:
    assert sample.GREEDY_BELOW == params.GREEDY_BELOW


# --- support sets on logits made by hand ---

PROBABILITIES = [0.1, 0.4, 0.05, 0.3, 0.15]
HAND = [math.log(p) for p in PROBABILITIES]


@pytest.mark.parametrize(("k", "ids"), [(1, [1]), (2, [1, 3]), (4, [0, 1, 3, 4]), (5, None), (0, None), (-1, None)])
def test_top_k_keeps_exactly_k(k: int, ids: list[int] | None) -> None:
    assert kept(HAND, top_k=k) == (ids or [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("p", "ids"),
    [
        (1e-9, [1]),
        (0.39, [1]),
        (0.41, [1, 3]),
        (0.69, [1, 3]),
        (0.71, [1, 3, 4]),
        (0.951, [0, 1, 2, 3, 4]),
        (1.0, [0, 1, 2, 3, 4]),
    ],
)
def test_top_p_keeps_the_smallest_prefix_that_reaches_p(p: float, ids: list[int]) -> None:
    assert kept(HAND, top_p=p) == ids


@pytest.mark.parametrize(
    ("p", "ids"), [(0.0, [0, 1, 2, 3, 4]), (0.37, [1, 3, 4]), (0.38, [1, 3]), (0.74, [1, 3]), (0.76, [1]), (1.0, [1])]
)
def test_min_p_is_relative_to_the_best(p: float, ids: list[int]) -> None:
    assert kept(HAND, min_p=p) == ids


def test_min_p_at_its_limit_keeps_the_token() -> None:
    assert kept([0.0, math.log(0.5), math.log(0.499)], min_p=0.5) == [0, 1]


def test_top_p_counts_mass_among_what_top_k_left() -> None:
    assert kept(HAND, top_k=2, top_p=0.56) == [1]  # 0.4 / 0.7 = 0.571
    assert kept(HAND, top_k=2, top_p=0.58) == [1, 3]


def test_filters_follow_temperature() -> None:
    assert kept(HAND, temperature=0.1, top_p=0.9) == [1]
    assert kept(HAND, temperature=100.0, top_p=0.9) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("p", "count"), [(0.1, 1), (0.3, 3), (0.35, 4), (0.7, 7), (0.999, 10)])
def test_equal_probabilities_are_kept_by_lower_id(p: float, count: int) -> None:
    assert kept([2.5] * 10, top_p=p) == list(range(count))
    assert kept([2.5] * 10, top_k=count) == list(range(count))


def test_both_zeros_tie() -> None:
    assert kept([-1.0, -0.0, 0.0, -0.0], top_k=2) == [1, 2]
    assert kept([-1.0, 0.0, -0.0, 0.0], top_k=2) == [1, 2]


@given(st.integers(0, 10_000), settings_of_a_row)
def test_support_equals_the_sorted_lists_of_the_oracle(seed: int, setting: dict[str, Any]) -> None:
    logits = random_logits(1, 60, seed)[0].tolist()
    setting["temperature"] = max(setting["temperature"], 0.3)
    limits = {name: setting[name] for name in ("temperature", "top_k", "top_p", "min_p")}
    assert kept(logits, **limits) == sorted(support(logits, **limits))


# --- the token drawn ---


@given(st.integers(0, 10_000), settings_of_a_row)
def test_draw_equals_the_oracle(seed: int, setting: dict[str, Any]) -> None:
    logits = random_logits(1, 50, seed)
    assert drawn(logits, [setting]) == [draw(logits[0].tolist(), **setting)]


@given(st.integers(0, 10_000), st.lists(settings_of_a_row, min_size=2, max_size=6))
def test_a_row_equals_its_solo_run(seed: int, rows: list[dict[str, Any]]) -> None:
    logits = random_logits(len(rows), 301, seed)
    alone = [drawn(logits[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    assert drawn(logits, rows) == alone


@given(st.integers(0, 10_000), settings_of_a_row, st.integers(1, 30), st.integers(0, 40))
def test_leaving_work_out_changes_no_token(seed: int, setting: dict[str, Any], k: int, spare: int) -> None:
    logits = random_logits(1, 80, seed).round()  # whole numbers: many ties
    only = {name: setting[name] for name in ("temperature", "seed", "sample", "position")}
    full = drawn(logits, [only])
    assert drawn(logits, [only], top_k=None, top_p=None, min_p=None) == full
    limited = [setting | {"top_k": k}]
    assert drawn(logits, limited, max_candidates=min(k + spare, 80)) == drawn(logits, limited)
    greedy = [setting | {"temperature": 0.0}]
    assert drawn(logits, greedy, temperature=None) == drawn(logits, greedy)


@pytest.mark.parametrize("temperature", [0.0, 1e-12, 9.9e-6])
def test_greedy_ties_go_to_the_lowest_id(temperature: float) -> None:
    logits = torch.tensor([[-1.0, -0.0, 0.0, -2.0, 0.0], [0.0, 3.0, 3.0, 1.0, 3.0]])
    for more in ({}, {"top_k": None, "top_p": None, "min_p": None}):
        assert drawn(logits, [{"temperature": temperature}] * 2, **more) == [1, 1]


@pytest.mark.parametrize("temperature", [1e-5, 1e-4])
def test_a_very_low_temperature_draws_the_best_and_no_nan(temperature: float) -> None:
    logits = torch.tensor([[3e38, -3e38, 1.0], [100.0, 100.5, -math.inf]])
    for setting in ({}, {"top_p": 0.9}, {"top_k": 2}, {"min_p": 0.1}):
        assert drawn(logits, [{"temperature": temperature} | setting] * 2) == [0, 1]


def test_seed_sample_and_position_each_change_the_draw() -> None:
    logits = torch.zeros(64, 50)
    base = drawn(logits, [{"seed": 7, "position": i} for i in range(64)])
    assert len(set(base)) > 20  # positions
    assert drawn(logits, [{"seed": 7, "position": i} for i in range(64)]) == base
    for change in ({"seed": 8}, {"sample": 1}, {"seed": 7 + 2**32}):
        other = drawn(logits, [{"seed": 7, "position": i} | change for i in range(64)])
        assert sum(a == b for a, b in zip(base, other, strict=True)) < 10, change


CRITICAL = 39.0  # chi-square with 9 degrees of freedom exceeds it once in 90,000 fair trials; seeds are fixed


@pytest.mark.parametrize(
    "setting",
    [{}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 6}, {"top_p": 0.8}, {"min_p": 0.1}],
    ids=str,
)
def test_draws_have_the_softmax_distribution(setting: dict[str, Any]) -> None:
    draws = 20_000
    logits = random_logits(1, 10, 4)[0]
    limits = OFF | setting
    ids = support(logits.tolist(), **limits)
    expected = torch.softmax(logits[ids].double() / limits["temperature"], dim=0) * draws
    tokens = torch.tensor(drawn(logits.expand(draws, 10), [setting | {"seed": seed} for seed in range(draws)]))
    observed = torch.bincount(tokens, minlength=10).double()
    assert observed.sum() == observed[ids].sum()
    assert ((observed[ids] - expected) ** 2 / expected).sum().item() < CRITICAL


def test_positions_of_one_seed_are_independent_draws() -> None:
    logits = torch.tensor([0.0, 1.0]).expand(20_001, 2)
    tokens = drawn(logits, [{"seed": 3, "position": position} for position in range(20_001)])
    pairs = torch.bincount(torch.tensor(tokens[:-1]) * 2 + torch.tensor(tokens[1:]), minlength=4).double()
    p = torch.softmax(logits[0].double(), dim=0)
    expected = torch.outer(p, p).flatten() * 20_000
    assert ((pairs - expected) ** 2 / expected).sum().item() < CRITICAL
