"""Attention and the choice of what it looks at, against float64: windows, rings, blocks, sinks, scores and ties."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from deepinfer_conformance.laws.attention import Sizes, Story, attend, best_blocks, best_entries, scores, tell
from deepinfer_conformance.laws.moving import HOST, moved
from deepinfer_conformance.laws.params import cached, every_dtype
from deepinfer_conformance.subject import Subject
from deepinfer_core.interfaces.ops import RowFormat
from deepinfer_core.ops.cases import MIXED, Maker, Segment
from deepinfer_core.ops.catalogue import CATALOGUE
from deepinfer_core.ops.formats import encode_rows

HEADS, DIM, TOP_K = 3, 64, 6
CLOSED = -1e30  # a sink that takes nothing

STEPS: Mapping[str, tuple[Segment, ...]] = {
    "one token": (Segment(0, 0, 1),),
    "prefill": (Segment(0, 0, 40),),
    "a later chunk": (Segment(1, 16, 25),),
    "a chunk longer than the ring": (Segment(0, 9, 30),),
    "decode at the ring's end": tuple(Segment(slot, 20 + slot, 1) for slot in range(5)),
    "decode at a block's end": tuple(Segment(slot, 13 + slot, 1) for slot in range(6)),
    "verify": (Segment(0, 21, 4), Segment(2, 31, 4), Segment(1, 3, 4)),
    "mixed": MIXED,
    "floors": (Segment(0, 30, 6, floor=28), Segment(1, 8, 3, floor=8), Segment(2, 40, 1, floor=40)),
}
PLAIN = (RowFormat.F32, RowFormat.F32)
PAIRS = (PLAIN, (RowFormat.BF16, RowFormat.BF16), (RowFormat.FP8_E8M0_32, RowFormat.FP4_E4M3_16))
INDEX_FORMATS = (RowFormat.F32, RowFormat.BF16, RowFormat.FP4_E8M0_32)
every_step = pytest.mark.parametrize("step", STEPS)
every_format = pytest.mark.parametrize("formats", [cached(*pair) for pair in PAIRS])
plain = pytest.mark.capability("cache.f32", "dtype.float32")


def run_attention(
    subject: Subject, story: Story, q: Tensor, selected: Tensor | None, sink: Tensor, scale: float = DIM**-0.5
) -> Tensor:
    """The op on the device, its result on the host."""
    given = moved((q, story.rows, story.window, story.entries, selected, sink), subject.torch_device)
    return subject.run(lambda: subject.ops.sparse_attention(*given, scale)).cpu()


def choose(story: Story, seed: int) -> Tensor | None:
    """int32 [T, TOP_K]: entries at the ends of blocks and others, ascending, none twice, then -1."""
    if story.entries is None:
        return None
    draw = torch.Generator().manual_seed(seed)
    chosen = torch.full((len(story.rows), TOP_K), -1, dtype=torch.int32)
    for row in range(len(story.rows)):
        ended = story.ended(row) if story.rows.slot[row] >= 0 else 0
        edges = [entry for entry in (7, 8, 15, 16, 0) if entry < ended]
        others = torch.randperm(ended, generator=draw).tolist()
        picked = sorted([*edges, *(entry for entry in others if entry not in edges)][:TOP_K])
        chosen[row, : len(picked)] = torch.tensor(picked, dtype=torch.int32)
    return chosen


def close(got: Tensor, expected: Tensor, op: str, dtype: str) -> None:
    """Within the op's tolerances; a NaN says that a row was read which nobody may read."""
    allowed = CATALOGUE[op].tolerances[dtype]
    torch.testing.assert_close(got.double(), expected, atol=allowed.absolute, rtol=allowed.relative)


@every_step
@every_format
@every_dtype
@pytest.mark.parametrize("ratio", [0, 1, 2])
def test_attention_is_a_softmax_over_what_a_row_may_see(
    subject: Subject, seed: int, op_dtype: str, formats: tuple[RowFormat, RowFormat], ratio: int, step: str
) -> None:
    story = tell(STEPS[step], formats, ratio, seed)
    make = Maker(HOST, getattr(torch, op_dtype), seed + 1)
    q, sink = make.normal(len(story.rows), HEADS, DIM), make.normal(HEADS, dtype=torch.float32)
    selected = choose(story, seed)
    got = run_attention(subject, story, q, selected, sink)
    real = story.rows.slot >= 0
    close(got[real], attend(story, q, selected, sink, DIM**-0.5)[real], "sparse_attention", op_dtype)


@plain
@pytest.mark.level("smoke")
@every_step
def test_a_window_ends_where_it_must(subject: Subject, seed: int, step: str) -> None:
    """With queries of zero each visible key weighs the same, and each key says its position: the answer lists them."""
    story = tell(STEPS[step], PLAIN, 0, seed, one_hot=True)
    got = run_attention(subject, story, torch.zeros(len(story.rows), 1, DIM), None, torch.tensor([CLOSED]))[:, 0]
    for row in range(len(story.rows)):
        if story.rows.slot[row] >= 0:
            seen = story.seen(row)
            assert got[row].nonzero().flatten().tolist() == sorted(position % DIM for position in seen)
            torch.testing.assert_close(got[row][seen[0] % DIM], torch.tensor(1 / len(seen)))


@plain
@every_step
@pytest.mark.parametrize("ratio", [1, 2])
def test_the_selected_entries_are_seen_and_no_others(subject: Subject, seed: int, step: str, ratio: int) -> None:
    """The window's keys are pushed away by the query, so that what is left lists the entries."""
    story = tell(STEPS[step], PLAIN, ratio, seed, one_hot=True)
    selected = choose(story, seed)
    assert selected is not None
    without = run_attention(subject, story, torch.zeros(len(story.rows), 1, DIM), None, torch.tensor([CLOSED]))[:, 0]
    got = run_attention(subject, story, torch.zeros(len(story.rows), 1, DIM), selected, torch.tensor([CLOSED]))[:, 0]
    for row in range(len(story.rows)):
        if story.rows.slot[row] >= 0:
            entries, window = [one for one in selected[row].tolist() if one >= 0], len(story.seen(row))
            counts = without[row] * window
            for entry in entries:
                counts[entry % DIM] += 1
            torch.testing.assert_close(got[row] * (window + len(entries)), counts)


@plain
@pytest.mark.level("smoke")
@pytest.mark.parametrize("sink", [CLOSED, -3.0, 0.0, 2.0, 30.0])
def test_the_sink_takes_its_share_and_gives_no_value(subject: Subject, seed: int, sink: float) -> None:
    """A single key k under the logit l: the answer is k * e^l / (e^l + e^sink); the sink is not scaled."""
    story = tell((Segment(0, 0, 1),), PLAIN, 0, seed)
    q = Maker(HOST, torch.float32, seed + 1).normal(len(story.rows), 2, DIM)
    got = run_attention(subject, story, q, None, torch.tensor([sink, 0.5]), scale=0.25)[0].double()
    key = story.keys[0][0]
    logits = q[0].double() @ key * 0.25
    share = torch.sigmoid(logits - torch.tensor([sink, 0.5], dtype=torch.float64))
    torch.testing.assert_close(got, share[:, None] * key, atol=1e-4, rtol=1e-4)


@plain
@every_step
def test_padding_rows_change_no_other_row(subject: Subject, seed: int, step: str) -> None:
    story = tell(STEPS[step], PLAIN, 1, seed)
    q = Maker(HOST, torch.float32, seed + 1).normal(len(story.rows), HEADS, DIM)
    selected, sink = choose(story, seed), torch.zeros(HEADS)
    q[story.rows.slot < 0] = math.nan
    got = run_attention(subject, story, q, selected, sink)
    real = story.rows.slot >= 0
    close(got[real], attend(story, q, selected, sink, DIM**-0.5)[real], "sparse_attention", "float32")


@every_format
@pytest.mark.capability("dtype.float32")
@pytest.mark.level("full")
def test_attention_at_the_sizes_of_a_real_model(
    subject: Subject, seed: int, formats: tuple[RowFormat, RowFormat]
) -> None:
    """Windows of 128 in rings of 140 that have wrapped many times, blocks of 64 tokens."""
    segments = (Segment(1, 1400, 1), Segment(0, 700, 200), Segment(3, 127, 2), Segment(2, 0, 60))
    story = tell(segments, formats, 2, seed, Sizes(128, 140, 32), dim=128)
    q = Maker(HOST, torch.float32, seed + 1).normal(len(story.rows), 4, 128)
    selected, sink = choose(story, seed), torch.tensor([-1.0, 0.0, 1.0, 2.0])
    got = run_attention(subject, story, q, selected, sink, scale=128**-0.5)
    real = story.rows.slot >= 0
    close(got[real], attend(story, q, selected, sink, 128**-0.5)[real], "sparse_attention", "float32")


@every_step
@every_dtype
@pytest.mark.parametrize("format", [cached(one) for one in INDEX_FORMATS])
@pytest.mark.parametrize("ratio", [1, 2])
def test_entries_are_scored_once_their_group_has_ended(
    subject: Subject, seed: int, op_dtype: str, format: RowFormat, ratio: int, step: str
) -> None:
    """The entries of unended groups, of other requests and beyond the tables are NaN and must not be looked at."""
    story = tell(STEPS[step], (RowFormat.F32, format), ratio, seed)
    make = Maker(HOST, getattr(torch, op_dtype), seed + 1)
    q, weights = make.normal(len(story.rows), HEADS, DIM), make.normal(len(story.rows), HEADS)
    count = max(len(one) for one in story.compressed.values())
    assert story.entries is not None
    given = moved((q, weights, story.entries, story.rows), subject.torch_device)
    got = subject.run(lambda: subject.ops.index_scores(*given, count)).cpu()
    assert got.dtype == torch.float32
    close(got, scores(story, q, weights, count), "index_scores", op_dtype)


TIES = torch.tensor(
    [
        [0.0, -0.0, 0.0, -0.0, 0.0, -0.0, 0.0, -0.0, 0.0],
        [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0],
        [-math.inf, 3.0, -math.inf, 3.0, -math.inf, -math.inf, 3.0, 3.0, 3.0],
        [-math.inf] * 9,
        [-5.0, -4.0, -3.0, -2.0, -1.0, -0.0, 0.0, -1.0, -2.0],
    ]
)


@pytest.mark.level("smoke")
@pytest.mark.parametrize("top_k", [1, 2, 4, 8, 9, 12])
def test_equal_scores_fall_to_the_lower_entry(subject: Subject, top_k: int) -> None:
    given = TIES.to(subject.torch_device)
    got = subject.run(lambda: subject.ops.select_topk(given, top_k)).cpu()
    assert got.dtype == torch.int32
    assert got.tolist() == [best_entries(row, top_k) for row in TIES.tolist()]


def tied_scores(rows: int, entries: int, seed: int) -> tuple[Tensor, Tensor]:
    """Scores with few distinct values, and how many of a row's entries are visible; the others are -inf."""
    make = Maker(HOST, torch.float32, seed)
    visible = make.integers(0, entries + 1, rows)
    drawn = make.integers(-3, 4, rows, entries).float() / 4
    return drawn.masked_fill(torch.arange(entries) >= visible[:, None], -math.inf), visible


@pytest.mark.parametrize("entries", [1, 37, 700, pytest.param(20_000, marks=pytest.mark.level("full"))])
@pytest.mark.parametrize("top_k", [1, 8, 64])
def test_the_best_entries_are_chosen_in_one_total_order(subject: Subject, seed: int, entries: int, top_k: int) -> None:
    drawn, _ = tied_scores(9, entries, seed)
    given = drawn.to(subject.torch_device)
    got = subject.run(lambda: subject.ops.select_topk(given, top_k)).cpu()
    assert got.tolist() == [best_entries(row, top_k) for row in drawn.tolist()]


@pytest.mark.parametrize(("entries", "size", "top"), [(24, 4, 3), (37, 4, 3), (37, 8, 9), (5, 8, 1), (640, 64, 4)])
def test_candidate_blocks_are_the_newest_and_the_best(
    subject: Subject, seed: int, entries: int, size: int, top: int
) -> None:
    """And entries are then chosen within them alone."""
    drawn, visible = tied_scores(9, entries, seed)
    given = moved((drawn, visible), subject.torch_device)
    blocks = subject.run(lambda: subject.ops.select_blocks(*given, size, top))
    expected = [best_blocks(row, int(n), size, top) for row, n in zip(drawn.tolist(), visible, strict=True)]
    assert blocks.cpu().tolist() == expected
    got = subject.run(lambda: subject.ops.select_topk(given[0], TOP_K, blocks=blocks, block_size=size)).cpu()
    inside = torch.tensor(expected).repeat_interleave(size, dim=1)[:, :entries]
    limited = drawn.masked_fill(~inside, -math.inf)
    assert got.tolist() == [best_entries(row, TOP_K) for row in limited.tolist()]


@pytest.mark.parametrize("ratio", [1, 2, 4])
def test_groups_are_compressed_whatever_step_began_them(subject: Subject, seed: int, ratio: int) -> None:
    """Each row that ends a group: tokens of this step, of earlier ones in the ring, and of both."""
    make = Maker(HOST, torch.float32, seed)
    dim, ring, slots = 24, ratio + 3, 5
    segments = (Segment(2, 5 * ratio - 1, 1), Segment(0, 0, 3 * ratio), Segment(3, 8 * ratio + 1, 2 * ratio))
    rows = make.rows(segments, padding=1)
    whole = {
        one.slot: (make.normal(one.first + one.count, dim), make.normal(one.first + one.count, dim)) for one in segments
    }
    pending = torch.full((slots * ring, 8 * dim), 0xFF, dtype=torch.uint8)
    for one in segments:
        for position in range(max(0, one.first - ratio + 1), one.first):
            both = torch.cat([part[position] for part in whole[one.slot]])
            pending[one.slot * ring + position % ring] = encode_rows(both, RowFormat.F32)
    spans = [(one.slot, slice(one.first, one.first + one.count)) for one in segments]
    u, gate = (torch.cat([*(whole[slot][part][span] for slot, span in spans), torch.zeros(1, dim)]) for part in (0, 1))
    given = moved((u, gate, pending, rows), subject.torch_device)
    got = subject.run(lambda: subject.ops.compress_kv(*given, ratio, ring)).cpu()
    for row in range(len(rows) - 1):
        end = int(rows.position[row]) + 1
        if end % ratio == 0:
            values, gates = (part[end - ratio : end].double() for part in whole[int(rows.slot[row])])
            close(got[row], (values * torch.softmax(gates, dim=0)).sum(0), "compress_kv", "float32")


@pytest.mark.capability("cache.f32", "dtype.float32")
@pytest.mark.parametrize("where", [0, 7, 8, 23, 31, 39])
def test_a_needle_is_found_in_any_block(subject: Subject, seed: int, where: int) -> None:
    """Scores, choice and attention in a row, each from the one before: the entry that answers the query comes back."""
    story = tell((Segment(1, 79, 1),), PLAIN, 2, seed, one_hot=True)
    q = torch.zeros(len(story.rows), 1, DIM)
    q[:, 0, where] = 40.0
    rows, device, ops = story.rows, subject.torch_device, subject.ops
    assert story.entries is not None
    given = moved((q, torch.ones(len(rows), 1), story.entries, rows, story.window), device)

    def step() -> Tensor:
        found = ops.index_scores(given[0], given[1], given[2], given[3], 40)
        best = ops.select_topk(found, 1)
        return ops.sparse_attention(given[0], given[3], given[4], given[2], best, torch.zeros(1, device=device), 1.0)

    got = subject.run(step).cpu()[0, 0]
    torch.testing.assert_close(got, torch.eye(DIM)[where], atol=1e-4, rtol=0)
