"""The total order of choices, against Python's sort."""

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.ops.order import best_first, best_of

scores_with_ties = st.lists(
    st.sampled_from([-math.inf, -3e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1.5, 3e38, math.inf]), min_size=1, max_size=90
)


@given(scores_with_ties, st.integers(0, 100))
def test_any_count_gives_the_leading_part_of_the_sorted_list(scores: list[float], count: int) -> None:
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]
    values, index = best_first(torch.tensor([scores]), count)
    assert index.tolist() == [expected]
    assert torch.equal(values, torch.tensor([scores]).gather(1, index))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("count", [0, 3, 400, 1000, 2000])
def test_dtypes_and_sizes_agree(dtype: torch.dtype, count: int) -> None:
    scores = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)).bfloat16().to(dtype)  # many ties
    order = torch.sort(scores.double(), dim=-1, descending=True, stable=True).indices
    values, index = best_first(scores, count)
    assert torch.equal(index, order[:, :count])
    assert torch.equal(values, scores.gather(1, index))


@given(scores_with_ties, st.randoms(use_true_random=False))
def test_the_best_of_shuffled_candidates_is_the_first_of_all(scores: list[float], rng: random.Random) -> None:
    index = rng.sample(range(len(scores)), len(scores))
    best = best_of(torch.tensor([[scores[i] for i in index]]), torch.tensor([index]))
    assert best.tolist() == [min(index, key=lambda i: (-scores[i], i))]


def test_the_best_of_nan_is_some_candidate() -> None:
    assert best_of(torch.tensor([[math.nan, math.nan]]), torch.tensor([[5, 3]])).tolist() == [5]
