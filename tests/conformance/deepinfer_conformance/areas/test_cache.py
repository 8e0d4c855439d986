"""Caches: rows are written, read and copied where they belong and nowhere else; what was rejected leaves no trace."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from deepinfer_conformance.laws.cache import LOSS, block_maxima, make_pool
from deepinfer_conformance.laws.moving import HOST, moved
from deepinfer_conformance.laws.params import cached, every_dtype
from deepinfer_conformance.subject import Subject
from deepinfer_core.interfaces.ops import RowFormat
from deepinfer_core.ops.cases import MIXED, Maker
from deepinfer_core.ops.formats import decode_rows, encode_rows, row_block

DIM = 64
every_format = pytest.mark.parametrize("format", [cached(one) for one in RowFormat])

WINDOW, DRAFTS = 9, 3
RING = WINDOW + 2 * (DRAFTS + 1)


def numbers(count: int, seed: int, smallest: int = -3) -> Tensor:
    """float32 [count, DIM] on the host, of sizes from 10 ** `smallest` to 100."""
    make = Maker(HOST, torch.float32, seed)
    return make.normal(count, DIM) * 10.0 ** make.integers(smallest, 3, count, 1)


def write(subject: Subject, pool: Tensor, x: Tensor, dest: list[int], format: RowFormat) -> None:
    there = x.to(pool.device)
    subject.run(lambda: subject.ops.write_rows(pool, there, torch.tensor(dest, device=pool.device), format))


def read(subject: Subject, pool: Tensor, index: Tensor, format: RowFormat) -> Tensor:
    there = index.to(pool.device)
    return subject.run(lambda: subject.ops.read_rows(pool, there, format, DIM)).cpu()


def copy(subject: Subject, pool: Tensor, source: list[int], dest: list[int]) -> None:
    pair = (torch.tensor(rows, dtype=torch.int64, device=pool.device) for rows in (source, dest))
    subject.run(lambda: subject.ops.copy_rows(pool, *pair))


@every_format
@pytest.mark.level("smoke")
def test_rows_are_written_where_they_belong(
    subject: Subject, device: torch.device, seed: int, format: RowFormat
) -> None:
    pool, dest = make_pool(device, 9, format.row_bytes(DIM), seed), [8, -1, 0, 3, -1, 7]
    x = numbers(len(dest), seed)
    write(subject, pool.rows, x, dest, format)
    stored = encode_rows(x, format)
    assert pool.changed({row: stored[at] for at, row in enumerate(dest) if row >= 0}) == []


@every_format
@every_dtype
def test_numbers_of_any_dtype_are_stored_alike(
    subject: Subject, device: torch.device, seed: int, format: RowFormat, op_dtype: str
) -> None:
    pool, dest = make_pool(device, 5, format.row_bytes(DIM), seed), [4, 2, 0]
    x = numbers(3, seed).to(getattr(torch, op_dtype))
    write(subject, pool.rows, x, dest, format)
    stored = encode_rows(x, format)
    assert pool.changed({row: stored[at] for at, row in enumerate(dest)}) == []


@every_format
def test_rows_are_read_from_where_they_lie(
    subject: Subject, device: torch.device, seed: int, format: RowFormat
) -> None:
    """In any shape of indices; -1 gives zeros whatever the pool holds."""
    x = numbers(11, seed)
    pool = torch.full((13, format.row_bytes(DIM)), 0xFF, dtype=torch.uint8)
    pool[1:12] = encode_rows(x, format)
    index = torch.tensor([[11, -1, 1], [4, 4, -1], [1, 7, 10]])
    got = read(subject, pool.to(device), index, format)
    expected = decode_rows(pool[index.clamp(min=0)], format, DIM).masked_fill((index < 0)[..., None], 0.0)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


@every_format
def test_a_round_trip_loses_no_more_than_the_format_must(
    subject: Subject, device: torch.device, seed: int, format: RowFormat
) -> None:
    """Within the range of its scales."""
    pool, x = make_pool(device, 40, format.row_bytes(DIM), seed), numbers(40, seed, smallest=0)
    write(subject, pool.rows, x, list(range(40)), format)
    got = read(subject, pool.rows, torch.arange(40), format).double()
    own, block = LOSS[format]
    allowed = own * x.double().abs() + block * block_maxima(x, row_block(format))
    assert bool(((got - x.double()).abs() <= allowed).all())


@every_format
def test_what_was_read_is_stored_again_without_a_change(
    subject: Subject, device: torch.device, seed: int, format: RowFormat
) -> None:
    """A cache that is moved through numbers, as between machines, drifts nowhere within the range of its scales."""
    pool, rows = make_pool(device, 12, format.row_bytes(DIM), seed), torch.arange(12)
    write(subject, pool.rows, numbers(12, seed, smallest=0), rows.tolist(), format)
    first = read(subject, pool.rows, rows, format)
    write(subject, pool.rows, first, rows.tolist(), format)
    assert torch.equal(read(subject, pool.rows, rows, format), first)
    assert pool.changed(dict(enumerate(pool.rows.cpu()))) == []


@pytest.mark.level("smoke")
def test_copies_move_bytes_and_skip_what_has_no_place(subject: Subject, device: torch.device, seed: int) -> None:
    """One source for several places; the source of a skipped copy may be any number."""
    pool = make_pool(device, 10, 37, seed)
    source, dest = [1, 1, -9, 7, 10**6, 9], [0, 8, -1, 3, -1, 6]
    copy(subject, pool.rows, source, dest)
    inside = pool.before[8:-8]
    assert pool.changed({to: inside[at] for at, to in zip(source, dest, strict=True) if to >= 0}) == []


def test_an_empty_step_touches_nothing(subject: Subject, device: torch.device, seed: int) -> None:
    format = subject.capabilities.kv_formats[0]
    pool = make_pool(device, 6, format.row_bytes(DIM), seed)
    write(subject, pool.rows, torch.zeros(0, DIM), [], format)
    copy(subject, pool.rows, [], [])
    assert read(subject, pool.rows, torch.zeros(0, 3, dtype=torch.int64), format).shape == (0, 3, DIM)
    assert pool.changed({}) == []


class Ring:
    """One request's ring and scratch in a pool, served as an engine does: to scratch first, then into the ring."""

    def __init__(self, subject: Subject, device: torch.device, format: RowFormat, seed: int) -> None:
        self._subject, self._format = subject, format
        self.pool = make_pool(device, RING + 32, format.row_bytes(DIM), seed)

    def step(self, x: Tensor, first: int) -> None:
        """Rows for positions first, first + 1, ...: those that would be overwritten within the step are skipped."""
        count = len(x)
        write(self._subject, self.pool.rows, x, [RING + row for row in range(count)], self._format)
        dest = [(first + row) % RING if row >= count - RING else -1 for row in range(count)]
        copy(self._subject, self.pool.rows, [RING + row for row in range(count)], dest)

    def window(self, end: int) -> Tensor:
        """The bytes of the last positions before `end` that a window of the next row sees."""
        rows = [position % RING for position in range(max(0, end - WINDOW + 1), end)]
        return self.pool.rows.cpu()[rows]


@every_format
def test_a_chunk_longer_than_its_ring_leaves_its_last_rows(
    subject: Subject, device: torch.device, seed: int, format: RowFormat
) -> None:
    ring, x = Ring(subject, device, format, seed), numbers(RING + 11, seed)
    ring.step(x, 5)
    end = 5 + len(x)
    assert torch.equal(ring.window(end), encode_rows(x, format)[len(x) - WINDOW + 1 :])


@every_format
@pytest.mark.parametrize("length", [DRAFTS, WINDOW, RING - 2, RING, 3 * RING - 1])
def test_rejected_drafts_leave_earlier_rows_as_they_were(
    subject: Subject, device: torch.device, seed: int, format: RowFormat, length: int
) -> None:
    """Rollback writes nothing: drafts lie where no window of an accepted row looks, across the ring's end as well."""
    ring, x = Ring(subject, device, format, seed), numbers(length + 2 * DRAFTS + 2, seed)
    for at in range(0, length, 5):
        ring.step(x[at : min(at + 5, length)], at)
    committed = ring.window(length)
    ring.step(x[length : length + 1 + DRAFTS], length)
    assert torch.equal(ring.window(length), committed)
    ring.step(x[-1 - DRAFTS :], length + 1)  # one row was accepted, the drafts were not
    expected = encode_rows(torch.cat([x[: length + 1], x[-1 - DRAFTS :]]), format)
    end = length + 2 + DRAFTS
    assert torch.equal(ring.window(end), expected[max(0, end - WINDOW + 1) : end])


@every_format
def test_sequences_that_share_a_block_never_write_to_it(
    subject: Subject, device: torch.device, seed: int, format: RowFormat
) -> None:
    """Two tables begin with the same block. Rows below `write_start` are skipped, the others land in the own block."""
    size, tables = 4, ([5, 1, 7], [5, 3, 0])
    pool = make_pool(device, 8 * size, format.row_bytes(DIM), seed)
    written: dict[int, Tensor] = {}
    for number, table in enumerate(tables):
        x, start = numbers(3 * size, seed + number), 0 if number == 0 else size
        dest = [table[at // size] * size + at % size if at >= start else -1 for at in range(3 * size)]
        write(subject, pool.rows, x, dest, format)
        written |= {row: one for row, one in zip(dest, encode_rows(x, format), strict=True) if row >= 0}
    assert pool.changed(written) == []


def test_the_history_is_read_across_the_ends_of_step_and_ring(subject: Subject, device: torch.device) -> None:
    """Tokens are `1000 * slot + position`, so that each answer says where it came from."""
    rows = Maker(HOST, torch.float32, 0).rows(MIXED, padding=2)
    slots, ring, n = 5, 6, 4
    tokens = 1000 * rows.slot.long() + rows.position
    history = torch.full((slots, ring), -7)
    for one in MIXED:
        for past in range(max(0, one.first - ring), one.first):
            history[one.slot, past % ring] = 1000 * one.slot + past
    given = moved((tokens, rows, history), device)
    got = subject.run(lambda: subject.ops.gather_history(*given, n)).cpu()
    position = rows.position.long()[:, None] - torch.arange(n)
    expected = 1000 * rows.slot.long()[:, None] + position
    assert torch.equal(got, expected.masked_fill((position < 0) | (rows.slot < 0)[:, None], -1))


@every_format
@pytest.mark.level("full")
def test_a_long_life_of_writes_and_copies_is_remembered(
    subject: Subject, device: torch.device, seed: int, format: RowFormat
) -> None:
    draw, count = random.Random(seed), 64
    pool = make_pool(device, count, format.row_bytes(DIM), seed)
    written: dict[int, Tensor] = dict(enumerate(pool.before[8:-8]))
    for step in range(200):
        rows = draw.sample(range(count), draw.randint(0, count // 2))
        if draw.random() < 0.5:
            x = numbers(len(rows), seed + step)
            write(subject, pool.rows, x, rows, format)
            written |= dict(zip(rows, encode_rows(x, format), strict=True))
        elif len(rows) < count:
            sources = draw.choices([row for row in range(count) if row not in rows], k=len(rows))
            copy(subject, pool.rows, sources, rows)
            written |= {to: written[at] for at, to in zip(sources, rows, strict=True)}
    assert pool.changed(written) == []
