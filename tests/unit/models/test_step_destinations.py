"""Where a step's rows are written, against one row at a time in Python."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.interfaces.ops import PagedView, RowFormat, Rows
from deepinfer_core.models.deepseek_v41.step import State, entry_destination, ring_destination

SLOTS = 4
SEGMENTS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=SLOTS)


def make_rows(segments, padding):
    """Segment i is (first position, rows) of slot i."""
    fields = []
    for slot, (first, count) in enumerate(segments):
        for offset in range(count):
            fields.append((slot, first + offset, first, len(fields) - offset, first + count - 1, 0))
    fields += [(-1, 0, 0, 0, 0, 0)] * padding
    return Rows(*(torch.tensor([row[i] for row in fields], dtype=torch.int32) for i in range(6)))


@given(segments=SEGMENTS, ring_rows=st.integers(1, 12), padding=st.integers(0, 2))
def test_a_ring_takes_the_last_rows_of_each_request(segments, ring_rows, padding):
    expected = []
    for slot, (first, count) in enumerate(segments):
        for position in range(first, first + count):
            lasting = position >= first + count - ring_rows
            expected.append(slot * ring_rows + position % ring_rows if lasting else -1)
    found = ring_destination(make_rows(segments, padding), ring_rows).tolist()
    assert found == expected + [-1] * padding
    written = [place for place in found if place >= 0]
    assert len(set(written)) == len(written)


@given(segments=SEGMENTS, ratio=st.sampled_from([1, 2, 4, 8]), padding=st.integers(0, 2), shared=st.integers(0, 4))
def test_an_entry_is_written_at_the_last_token_of_its_group(segments, ratio, padding, shared):
    """Unless the token lies in the first blocks, which are shared."""
    block_rows = 16 // ratio
    table = torch.randperm(SLOTS * 5, generator=torch.Generator().manual_seed(1)).to(torch.int32).view(SLOTS, 5)
    entries = PagedView(torch.empty(0), RowFormat.F32, table, block_rows, ratio)
    expected = []
    for slot, (first, count) in enumerate(segments):
        for position in range(first, first + count):
            entry, rest = divmod(position, ratio)
            place = int(table[slot, entry // block_rows]) * block_rows + entry % block_rows
            own = position >= 16 * shared
            expected.append(place if rest == ratio - 1 and own else -1)
    rows = make_rows(segments, padding)
    write_start = torch.full((len(rows),), 16 * shared, dtype=torch.int32)
    assert entry_destination(rows, write_start, entries).tolist() == expected + [-1] * padding


def test_a_state_keeps_the_rows_asked_for():
    state = State(streams=torch.arange(6.0).view(3, 1, 2), pre=torch.arange(3.0).view(3, 1), classes=None)
    state.keep(torch.tensor([0, 2]))
    assert state.streams.tolist() == [[[0.0, 1.0]], [[4.0, 5.0]]]
    assert state.pre.tolist() == [[0.0], [2.0]]
    assert state.classes is None
    assert state.selected is None
