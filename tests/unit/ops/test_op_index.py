"""The indexer: scores against a dense formula, candidate blocks, and the total order of the top k."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.interfaces.ops import RowFormat
from deepinfer_core.ops.cases import MIXED, Maker
from deepinfer_core.ops.formats import decode_rows
from deepinfer_core.ops.index import index_scores, select_blocks, select_topk

INF = float("inf")


@pytest.mark.parametrize("ratio", [1, 2])
def test_scores_equal_a_loop_over_rows_and_entries(ratio: int) -> None:
    make = Maker(torch.device("cpu"), torch.float32, 3)
    rows, keys = make.rows(MIXED), make.paged(MIXED, RowFormat.FP4_E8M0_32, 32, ratio, 8)
    q, weights = make.normal(len(rows), 4, 32), make.normal(len(rows), 4)
    scores = index_scores(q, weights, keys, rows, 42)
    for t in range(len(rows)):
        slot, ended = int(rows.slot[t]), (int(rows.position[t]) + 1) // ratio
        assert (scores[t, ended:] == -INF).all()
        for j in range(ended):
            stored = keys.pool[int(keys.block_table[slot, j // 8]) * 8 + j % 8]
            key = decode_rows(stored, RowFormat.FP4_E8M0_32, 32)
            expected = sum(float(weights[t, h]) * max(0.0, float(q[t, h] @ key)) for h in range(4))
            assert scores[t, j].item() == pytest.approx(expected, abs=1e-4)


def test_more_entries_than_the_block_table_holds_are_invisible_not_an_error() -> None:
    make = Maker(torch.device("cpu"), torch.float32, 3)
    rows, keys = make.rows(MIXED, padding=1), make.paged(MIXED, RowFormat.F32, 32, 2, 8)
    scores = index_scores(make.normal(len(rows), 2, 32), make.normal(len(rows), 2), keys, rows, 999)
    assert scores.shape == (len(rows), 999)
    assert (scores[:, 100:] == -INF).all()
    assert (scores[-1] == -INF).all()


def ranked(scores: list[float]) -> list[int]:
    """Indices by (score, lower index), best first, without -inf."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    return [i for i in order if scores[i] > -INF]


few_values = st.sampled_from([-INF, -1.0, -0.0, 0.0, 0.5, 2.0])


@given(st.lists(few_values, max_size=30), st.integers(1, 12))
def test_topk_follows_the_total_order(scores: list[float], top_k: int) -> None:
    chosen = select_topk(torch.tensor([scores]).view(1, -1), top_k)[0].tolist()
    best = sorted(ranked(scores)[:top_k])
    assert chosen == best + [-1] * (top_k - len(best))


@given(st.lists(few_values, min_size=1, max_size=30), st.integers(1, 8), st.data())
def test_topk_stays_in_the_candidate_blocks(scores: list[float], size: int, data: st.DataObject) -> None:
    count = -(-len(scores) // size)
    blocks = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    chosen = select_topk(torch.tensor([scores]), 5, torch.tensor([blocks]), size)[0].tolist()
    masked = [score if blocks[i // size] else -INF for i, score in enumerate(scores)]
    best = sorted(ranked(masked)[:5])
    assert chosen == best + [-1] * (5 - len(best))


@given(st.lists(few_values, min_size=1, max_size=30), st.integers(1, 6), st.integers(1, 6))
def test_blocks_are_the_best_with_the_newest_forced_in(scores: list[float], size: int, top: int) -> None:
    visible = len(scores)
    blocks = select_blocks(torch.tensor([scores]), torch.tensor([visible]), size, top)[0].tolist()
    worth = [max(scores[i : i + size]) for i in range(0, visible, size)]
    worth[(visible - 1) // size] = INF
    best = ranked(worth)[:top]
    assert [i for i, chosen in enumerate(blocks) if chosen] == sorted(best)


def test_the_newest_block_is_that_of_the_last_visible_entry() -> None:
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0, -INF, -INF, -INF]])
    for visible, expected in ((5, [False, False, True, False]), (4, [False, True, False, False])):
        hidden = torch.where(torch.arange(8) < visible, scores, -INF)
        assert select_blocks(hidden, torch.tensor([visible]), 2, 1)[0].tolist() == expected


def test_nothing_visible_chooses_nothing() -> None:
    scores = torch.full((2, 6), -INF)
    assert not select_blocks(scores, torch.zeros(2, dtype=torch.int64), 4, 2).any()
    assert (select_topk(scores, 3) == -1).all()


def test_topk_treats_both_zeros_as_equal() -> None:
    assert select_topk(torch.tensor([[-0.0, 0.0, -0.0, 0.0]]), 2).tolist() == [[0, 1]]
