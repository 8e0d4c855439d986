"""Ops that read rings, scratch and pools, driven as an engine drives them: random chunks of several requests, step by
step, against what each request would see alone and whole."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from deepinfer_core.interfaces.ops import PagedView, RowFormat, Rows, WindowView
from deepinfer_core.ops.attention import sparse_attention
from deepinfer_core.ops.cache import copy_rows, gather_history, read_rows, write_rows
from deepinfer_core.ops.cases import Maker, Segment
from deepinfer_core.ops.compress import compress_kv
from deepinfer_core.ops.formats import decode_rows, encode_rows

CPU = torch.device("cpu")
SLOTS, DIM, WINDOW, RING, MAX_ROWS = 4, 32, 5, 7, 24


@dataclass
class Steps:
    """Requests in slots 0..3 that advance by random chunks; yields the segments of each step."""

    lengths: list[int] = field(default_factory=lambda: [0] * SLOTS)

    def advance(self, chunks: list[int]) -> list[Segment]:
        segments = [Segment(slot, self.lengths[slot], n) for slot, n in enumerate(chunks) if n]
        for segment in segments:
            self.lengths[segment.slot] += segment.count
        return segments


# Some steps; in each, how many tokens every slot advances by (0: it rests).
schedules = st.lists(st.lists(st.sampled_from([0, 1, 1, 2, 5]), min_size=SLOTS, max_size=SLOTS), max_size=6)


def poisoned(rows: int, format: RowFormat, dim: int) -> Tensor:
    return torch.full((rows, format.row_bytes(dim)), 0xFF, dtype=torch.uint8)


def last_in_ring(rows: Rows, ring_rows: int) -> Tensor:
    """Ring row of each row, -1 for rows that later rows of the step overwrite."""
    dest = rows.slot * ring_rows + rows.position % ring_rows
    return torch.where(rows.position > rows.last_position - ring_rows, dest, -1)


@given(schedules, st.integers(0, 2**31))
@pytest.mark.parametrize("format", [RowFormat.F32, RowFormat.FP8_E8M0_32])
def test_window_attention_in_chunks_is_that_of_whole_sequences(
    format: RowFormat, schedule: list[list[int]], seed: int
) -> None:
    make, steps, base = Maker(CPU, torch.float32, seed), Steps(), 3
    fresh_base = base + SLOTS * RING
    view = WindowView(poisoned(fresh_base + MAX_ROWS, format, DIM), format, base, fresh_base, RING, WINDOW)
    past: list[list[Tensor]] = [[] for _ in range(SLOTS)]
    sink = make.normal(2)
    for chunks in schedule:
        rows = make.rows(steps.advance(chunks), padding=1)
        keys, q = make.normal(len(rows), DIM), make.normal(len(rows), 2, DIM)
        scratch = torch.where(rows.slot >= 0, torch.arange(len(rows)) + fresh_base, -1)
        write_rows(view.pool, keys, scratch, format)
        out = sparse_attention(q, rows, view, None, None, sink, 0.3)
        ring = last_in_ring(rows, RING)
        copy_rows(view.pool, scratch, torch.where((rows.slot >= 0) & (ring >= 0), ring + base, -1))
        stored = decode_rows(encode_rows(keys, format), format, DIM)
        for t in range(len(rows) - 1):
            past[int(rows.slot[t])].append(stored[t])
            seen = torch.stack(past[int(rows.slot[t])][-WINDOW:])
            assert torch.allclose(out[t], attend(q[t], seen, sink, 0.3), atol=1e-5)


def attend(q: Tensor, keys: Tensor, sink: Tensor, scale: float) -> Tensor:
    """One row: exp of scaled products over their sum plus exp of the sink."""
    mass = torch.exp(q.double() @ keys.double().T * scale)
    return (mass @ keys.double() / (mass.sum(-1) + sink.double().exp())[:, None]).float()


def test_attention_adds_the_selected_entries_and_no_others() -> None:
    make = Maker(CPU, torch.float32, 5)
    segments = [Segment(1, 9, 3), Segment(3, 20, 1)]
    rows = make.rows(segments)
    window, entries = make.window(segments, RowFormat.F32, DIM, 4, 6), make.paged(segments, RowFormat.F32, DIM, 2, 4)
    q, sink = make.normal(4, 2, DIM), make.normal(2)
    selected = torch.tensor([[0, 3, -1], [-1, -1, -1], [4, -1, 2], [9, 0, 5]], dtype=torch.int32)
    out = sparse_attention(q, rows, window, entries, selected, sink, 0.2)
    for t in range(4):
        slot, position = int(rows.slot[t]), int(rows.position[t])
        keys = [window_key(window, rows, t, p) for p in range(position - 3, position + 1)]
        keys += [entry_key(entries, slot, int(j)) for j in selected[t] if j >= 0]
        assert torch.allclose(out[t], attend(q[t], torch.stack(keys), sink, 0.2), atol=1e-5)


def window_key(view: WindowView, rows: Rows, t: int, position: int) -> Tensor:
    first = int(rows.first_position[t])
    if position >= first:
        index = view.fresh_base + int(rows.first_row[t]) + position - first
    else:
        index = view.base + int(rows.slot[t]) * view.ring_rows + position % view.ring_rows
    return decode_rows(view.pool[index], view.format, DIM)


def entry_key(view: PagedView, slot: int, entry: int) -> Tensor:
    block = int(view.block_table[slot, entry // view.block_rows])
    return decode_rows(view.pool[block * view.block_rows + entry % view.block_rows], view.format, DIM)


def test_the_floor_cuts_the_window() -> None:
    make = Maker(CPU, torch.float32, 6)
    segments = [Segment(0, 10, 1, floor=9)]
    view = make.window(segments, RowFormat.F32, DIM, 4, 6)
    rows, q, sink = make.rows(segments), make.normal(1, 2, DIM), make.normal(2)
    keys = torch.stack([window_key(view, rows, 0, p) for p in (9, 10)])
    assert torch.allclose(sparse_attention(q, rows, view, None, None, sink, 1.0)[0], attend(q[0], keys, sink, 1.0))


def test_some_of_a_steps_rows_attend_as_they_do_among_all() -> None:
    make = Maker(CPU, torch.float32, 7)
    segments = [Segment(0, 4, 6), Segment(2, 0, 3)]
    rows, view = make.rows(segments), make.window(segments, RowFormat.F32, DIM, 4, 6)
    q, sink, kept = make.normal(9, 2, DIM), make.normal(2), torch.tensor([3, 5, 8])
    whole = sparse_attention(q, rows, view, None, None, sink, 0.3)
    assert torch.allclose(sparse_attention(q[kept], rows.take(kept), view, None, None, sink, 0.3), whole[kept])


def test_a_padding_row_sees_nothing_whatever_it_selects() -> None:
    make = Maker(CPU, torch.float32, 8)
    rows, window = make.rows([], padding=3), make.window([], RowFormat.F32, DIM, 4, 6)
    entries, selected = make.paged([], RowFormat.F32, DIM, 2, 4), torch.full((3, 2), 99999)
    out = sparse_attention(make.normal(3, 2, DIM), rows, window, entries, selected, make.normal(2), 1.0)
    assert torch.equal(out, torch.zeros(3, 2, DIM))


@given(schedules, st.sampled_from([1, 2, 3, 4]), st.integers(0, 2**31))
def test_compression_in_chunks_is_that_of_whole_sequences(schedule: list[list[int]], ratio: int, seed: int) -> None:
    make, steps, dim = Maker(CPU, torch.float32, seed), Steps(), 3
    pending = poisoned(SLOTS * ratio, RowFormat.F32, 2 * dim)
    past: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(SLOTS)]
    for chunks in schedule:
        rows = make.rows(steps.advance(chunks))
        u, gate = make.normal(len(rows), dim), make.normal(len(rows), dim)
        out = compress_kv(u, gate, pending, rows, ratio, ratio)
        write_rows(pending, torch.cat([u, gate], 1), last_in_ring(rows, ratio), RowFormat.F32)
        for t in range(len(rows)):
            mine = past[int(rows.slot[t])]
            mine.append((u[t], gate[t]))
            if len(mine) % ratio == 0:
                values, gates = (torch.stack(part) for part in zip(*mine[-ratio:], strict=True))
                expected = (values * gates.exp()).sum(0) / gates.exp().sum(0)
                assert torch.allclose(out[t], expected, atol=1e-5)


@given(schedules, st.integers(1, 5), st.integers(0, 2**31))
def test_history_in_chunks_is_that_of_whole_sequences(schedule: list[list[int]], n: int, seed: int) -> None:
    make, steps = Maker(CPU, torch.float32, seed), Steps()
    history = torch.full((SLOTS, n + 1), -777)
    past: list[list[int]] = [[] for _ in range(SLOTS)]
    for chunks in schedule:
        rows = make.rows(steps.advance(chunks), padding=1)
        tokens = make.integers(0, 1000, len(rows))
        found = gather_history(tokens, rows, history, n)
        for t in range(len(rows) - 1):
            mine = past[int(rows.slot[t])]
            mine.append(int(tokens[t]))
            recent = mine[::-1][:n]
            assert found[t].tolist() == recent + [-1] * (n - len(recent))
            history[int(rows.slot[t]), (len(mine) - 1) % (n + 1)] = tokens[t]
        assert found[-1].tolist() == [-1] * n


@pytest.mark.parametrize("format", list(RowFormat))
def test_rows_come_back_as_they_were_stored_and_others_stay(format: RowFormat) -> None:
    pool, x = torch.randint(0, 256, (9, format.row_bytes(DIM))).to(torch.uint8), torch.randn(4, DIM)
    before, dest = pool.clone(), torch.tensor([7, -1, 0, 3])
    write_rows(pool, x, dest, format)
    kept = dest >= 0
    assert torch.equal(read_rows(pool, dest[kept], format, DIM), decode_rows(encode_rows(x[kept], format), format, DIM))
    others = [row for row in range(9) if row not in (7, 0, 3)]
    assert torch.equal(pool[others], before[others])


def test_reading_row_minus_one_gives_zeros_even_from_a_poisoned_pool() -> None:
    pool = poisoned(3, RowFormat.F32, DIM)
    assert torch.equal(read_rows(pool, torch.tensor([[-1, -1]]), RowFormat.F32, DIM), torch.zeros(1, 2, DIM))


def test_copies_skip_destination_minus_one() -> None:
    pool = torch.arange(5).to(torch.uint8)[:, None].repeat(1, 3)
    copy_rows(pool, torch.tensor([4, 9, 4]), torch.tensor([0, -1, 1]))
    assert pool[:, 0].tolist() == [4, 4, 2, 3, 4]
