"""Collectives: with one rank they change nothing; with several, each gives what plain sums and slices give."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from deepinfer_conformance.laws.collective import ROWS, WIDTH, on_all_ranks, part, sent
from deepinfer_conformance.laws.moving import same_bits
from deepinfer_conformance.laws.ranks import RANKS, Answer
from deepinfer_conformance.subject import Subject
from deepinfer_core.interfaces.parallel import Group

# --- one rank: what every backend has ------------------------------------------------------------------------------


@pytest.mark.level("smoke")
@pytest.mark.parametrize("name", ["dp", "cp", "ep", "world"])
def test_one_rank_keeps_what_it_has(subject: Subject, seed: int, name: str) -> None:
    communicator = subject.device.communicator(Group(name))
    assert (communicator.group.name, communicator.group.ranks, communicator.group.rank) == (name, (0,), 0)
    x = part(seed, 0)

    def each(there: Tensor) -> list[Tensor]:
        return [
            communicator.all_reduce(there),
            communicator.all_gather(there),
            communicator.reduce_scatter(there),
            communicator.all_to_all(there, [len(there)], [len(there)]),
            communicator.broadcast(there, 0),
        ]

    for rows in (0, ROWS):
        results = subject.run(partial(each, x[:rows].to(subject.torch_device)))
        assert all(same_bits(result, x[:rows]) for result in results)
    subject.run(communicator.barrier)


# --- several ranks: whoever claims it ------------------------------------------------------------------------------


def answers(subject: Subject, law: str, seed: int) -> list[Answer]:
    """Of every rank; what each computed twice must have the same bits, for reductions have a fixed order."""
    found = on_all_ranks(subject, law, seed)
    for rank, answer in enumerate(found):
        assert answer["group"] == (tuple(range(RANKS)), rank)
        assert same_bits(answer["first"], answer["again"]), f"rank {rank} had other bits the second time"
    return found


def summed(seed: int, rows: int = ROWS) -> Tensor:
    """float64: the sum over all ranks' parts."""
    return sum((part(seed, rank, rows).double() for rank in range(RANKS)), torch.zeros(1, dtype=torch.float64))


def close(got: Tensor, exact: Tensor) -> None:
    """Numbers are as large as 10^5, and so is what was rounded."""
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-2)


@pytest.mark.capability("collectives.all_reduce")
def test_all_reduce_is_the_sum_and_the_same_everywhere(subject: Subject, seed: int) -> None:
    found = answers(subject, "all_reduce", seed)
    for answer in found:
        close(answer["first"], summed(seed))
        assert same_bits(answer["first"], found[0]["first"])


@pytest.mark.capability("collectives.all_reduce")
def test_all_reduce_takes_slices_and_leaves_what_lies_between(subject: Subject, seed: int) -> None:
    for answer in answers(subject, "strided", seed):
        close(answer["first"][:ROWS], summed(seed))
        assert torch.equal(answer["first"][ROWS:], torch.zeros(ROWS, WIDTH))


@pytest.mark.capability("collectives.all_gather")
def test_all_gather_joins_the_parts_in_order_of_rank(subject: Subject, seed: int) -> None:
    for answer in answers(subject, "all_gather", seed):
        assert same_bits(answer["first"], torch.cat([part(seed, rank) for rank in range(RANKS)]))


@pytest.mark.capability("collectives.reduce_scatter")
def test_reduce_scatter_gives_each_rank_its_part_of_the_sum(subject: Subject, seed: int) -> None:
    total = summed(seed, RANKS * ROWS)
    for rank, answer in enumerate(answers(subject, "reduce_scatter", seed)):
        close(answer["first"], total[rank * ROWS : (rank + 1) * ROWS])


@pytest.mark.capability("collectives.all_to_all")
def test_all_to_all_delivers_rows_in_order_of_their_source(subject: Subject, seed: int) -> None:
    """Different numbers of rows to each, none to some."""
    for rank, answer in enumerate(answers(subject, "all_to_all", seed)):
        counts = [sent(source, RANKS) for source in range(RANKS)]
        rows = [part(seed, source, sum(one)) for source, one in enumerate(counts)]
        parts = [torch.split_with_sizes(*pair) for pair in zip(rows, counts, strict=True)]
        assert same_bits(answer["first"], torch.cat([one[rank] for one in parts]))


@pytest.mark.capability("collectives.broadcast")
def test_broadcast_gives_everyone_what_the_source_has(subject: Subject, seed: int) -> None:
    for answer in answers(subject, "broadcast", seed):
        assert same_bits(answer["first"], part(seed, RANKS - 1))


@pytest.mark.capability("collectives.barrier")
def test_a_barrier_waits_for_every_rank(subject: Subject, seed: int) -> None:
    for answer in on_all_ranks(subject, "barrier", seed):
        assert not answer["early"], f"ranks {answer['early']} passed before the last one had come"
