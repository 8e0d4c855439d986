"""Logprobs and ranks, the acceptance of drafts, masks and penalties, against numpy or by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sampling_oracle import log_softmax

from deepinfer_core.ops.sample import apply_penalties, apply_token_mask, top_logprobs, verify_drafts

logit_rows = st.lists(st.integers(-6, 6).map(lambda value: value / 2), min_size=3, max_size=40)


@given(logit_rows, st.data())
def test_logprobs_and_ranks_equal_a_sorted_log_softmax(logits: list[float], data: st.DataObject) -> None:
    token, k = data.draw(st.integers(0, len(logits) - 1)), data.draw(st.integers(0, len(logits)))
    logprob, rank, ids, values = top_logprobs(torch.tensor([logits]), torch.tensor([token]), k)
    expected = log_softmax(logits)
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    assert logprob.item() == pytest.approx(expected[token], abs=1e-5)
    assert rank.item() == order.index(token) + 1
    assert ids.tolist() == [order[:k]]
    np.testing.assert_allclose(values[0].numpy(), expected[order[:k]], atol=1e-5)


def test_logprobs_of_a_row_do_not_depend_on_its_batch() -> None:
    logits = torch.randn(9, 20_011, generator=torch.Generator().manual_seed(0))
    tokens = torch.arange(9) * 100
    together = top_logprobs(logits, tokens, 7)
    for row in range(9):
        alone = top_logprobs(logits[row : row + 1], tokens[row : row + 1], 7)
        assert all(torch.equal(whole[row : row + 1], one) for whole, one in zip(together, alone, strict=True))


@pytest.mark.parametrize(
    ("target", "drafts", "proposed", "count"),
    [
        ([5, 6, 7, 8], [5, 6, 7], 3, 4),  # all accepted, and the bonus token
        ([5, 6, 7, 8], [5, 6, 9], 3, 3),
        ([5, 6, 7, 8], [9, 6, 7], 3, 1),  # what follows a rejection counts for nothing
        ([5, 6, 7, 8], [5, 6, 7], 2, 3),  # fewer drafts than the batch is wide
        ([5, 6, 7, 8], [5, 6, 7], 0, 1),
    ],
)
def test_drafts_hold_up_to_the_first_difference(
    target: list[int], drafts: list[int], proposed: int, count: int
) -> None:
    result = verify_drafts(torch.tensor([target]), torch.tensor([drafts]), torch.tensor([proposed]))
    assert result.tolist() == [count]


def test_without_drafts_one_token_holds() -> None:
    none = torch.empty(3, 0, dtype=torch.int64)
    assert verify_drafts(torch.tensor([[1], [2], [3]]), none, torch.zeros(3)).tolist() == [1, 1, 1]


def test_token_mask_reads_every_bit_of_a_word() -> None:
    vocab = 70
    for token in range(vocab):
        words = np.zeros(3, np.uint32)
        words[token >> 5] = 1 << (token & 31)
        allowed = apply_token_mask(torch.zeros(1, vocab), torch.from_numpy(words.view(np.int32))[None])
        assert allowed.isfinite().nonzero()[:, 1].tolist() == [token]


def test_penalties_as_the_field_defines_them() -> None:
    logits = torch.tensor([[2.0, -2.0, 2.0, -2.0, 2.0, 0.0]])
    prompt_seen = torch.tensor([[True, True, False, False, False, True]])
    counts = torch.tensor([[0, 0, 1, 3, 0, 0]], dtype=torch.int32)
    factor, presence, frequency = torch.tensor([2.0]), torch.tensor([0.5]), torch.tensor([0.25])
    result = apply_penalties(logits, prompt_seen, counts, factor, presence, frequency)
    # prompt: repetition only; answer: repetition, then 0.5 once and 0.25 a time; unseen: nothing
    assert result.tolist() == [[1.0, -4.0, 1.0 - 0.75, -4.0 - 1.25, 2.0, 0.0]]


def test_penalties_make_no_infinity_and_keep_what_was_banned() -> None:
    logits = torch.tensor([[3e38, -math.inf, -3e38]])
    seen, counts = torch.ones(1, 3, dtype=torch.bool), torch.zeros(1, 3, dtype=torch.int32)
    zero, tiny = torch.zeros(1), torch.tensor([torch.finfo(torch.float32).tiny])
    result = apply_penalties(logits, seen, counts, tiny, zero, zero)
    assert result[0, 0].isfinite()
    assert result[0, 1] == -math.inf
    assert not result.isnan().any()
