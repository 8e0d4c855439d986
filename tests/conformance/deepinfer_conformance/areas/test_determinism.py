"""Determinism, measured: the same batch again, rows in other batches, experts on other ranks. The card shows the level.

Sameness is the subject here; that the values are right as well is checked beside it, against the references.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from deepinfer_conformance.inputs import Arguments, Case, expected, host_cases, is_claimed, map_tensors, tensors
from deepinfer_conformance.laws.collective import on_all_ranks
from deepinfer_conformance.laws.moving import HOST, moved, same_bits
from deepinfer_conformance.laws.rows import HELD, row_trials
from deepinfer_conformance.laws.wide import wide_cases
from deepinfer_conformance.records import Note
from deepinfer_conformance.subject import Subject
from deepinfer_conformance.yardstick import elementwise
from deepinfer_core.interfaces.backend import Determinism
from deepinfer_core.ops.catalogue import CATALOGUE

every_op = pytest.mark.parametrize("name", sorted(CATALOGUE))
every_row_op = pytest.mark.parametrize("name", HELD)
AGAIN = 3


def cases(subject: Subject, name: str, seed: int) -> Iterator[Case]:
    """The catalogue's cases and larger ones, at which blocks, tiles and threads come into play, in claimed formats."""
    dtype = subject.capabilities.dtypes[0]
    own = dtype if dtype in CATALOGUE[name].tolerances else "float32"
    for case in (*host_cases(CATALOGUE[name], own, seed), *wide_cases(name, own, seed)):
        if is_claimed(case.arguments, subject.capabilities):
            yield case


def repeated(subject: Subject, name: str, seed: int) -> list[str]:
    """Cases of the op whose bits differ from one run to the next, or from what they should be."""
    spec, faults = CATALOGUE[name], []

    def run(case: Case) -> list[object]:
        there = moved(case.arguments, subject.torch_device)
        result = getattr(subject.ops, name)(**there)
        return [*tensors(result), *(there[parameter] for parameter in spec.mutates)]

    for case in cases(subject, name, seed):
        first = subject.run(partial(run, case))
        for _ in range(AGAIN):
            if not same_bits(tuple(first), tuple(subject.run(partial(run, case)))):
                faults.append(f"{name}, case {case.name!r}: the same inputs gave other bits")
                break
    return faults


def mixed_up(subject: Subject, name: str, seed: int) -> list[str]:
    """Cases of the op in which a row's bits depend on the batch."""
    faults, tried = [], 0

    def trials(there: Arguments) -> list[tuple[list[int], bool]]:
        return list(row_trials(subject.ops, name, there, seed))

    for case in cases(subject, name, seed):
        there = moved(case.arguments, subject.torch_device)
        for rows, same in subject.run(partial(trials, there)):
            tried += 1
            if not same:
                faults.append(f"{name}, case {case.name!r}: rows {rows} have other bits in a batch of their own")
    assert tried, f"no case of {name} has rows in a format that the backend claims"
    return faults


@pytest.mark.capability("determinism.same_batch")
@every_op
def test_the_same_batch_has_the_same_bits(subject: Subject, seed: int, name: str) -> None:
    assert not (faults := repeated(subject, name, seed)), "\n".join(faults)


@pytest.mark.capability("determinism.batch_invariant")
@every_row_op
def test_a_row_has_its_bits_in_any_batch(subject: Subject, seed: int, name: str) -> None:
    """Alone, first, last, backwards, repeated, among strangers."""
    assert not (faults := mixed_up(subject, name, seed)), "\n".join(faults)


@pytest.mark.parametrize("name", ["linear", "lm_head", "sparse_attention", "experts"])
def test_the_larger_cases_have_the_right_values(subject: Subject, seed: int, name: str) -> None:
    """So that rows which are wrong alike in every batch do not pass for deterministic."""
    spec, dtype = CATALOGUE[name], subject.capabilities.dtypes[0]
    for case in wide_cases(name, dtype, seed):
        if is_claimed(case.arguments, subject.capabilities):
            there = moved(case.arguments, subject.torch_device)
            got = subject.run(partial(getattr(subject.ops, name), **there))
            wanted = expected(spec, map_tensors(case.arguments, lambda x: x.clone()))
            fault = elementwise(tensors(moved(got, HOST)), wanted, spec.tolerances[dtype])
            assert not fault, f"{case.name}: {fault}"


@pytest.mark.level("full")
@pytest.mark.capability("determinism.batch_invariant")
@every_row_op
def test_a_row_has_its_bits_in_any_batch_of_other_seeds(subject: Subject, seed: int, name: str) -> None:
    for other in range(seed + 1, seed + 5):
        assert not (faults := mixed_up(subject, name, other)), "\n".join(faults)


@pytest.mark.capability("determinism.rank_invariant", "collectives.all_reduce")
def test_experts_spread_over_ranks_have_the_bits_of_one_rank(subject: Subject, seed: int) -> None:
    """Each rank computes its own experts' parts, the parts are exchanged, and summed in the router's order."""
    assert_rank_invariant(subject, seed)


def assert_rank_invariant(subject: Subject, seed: int) -> None:
    answers = on_all_ranks(subject, "experts", seed)
    alone = answers[0]["alone"]
    for rank, answer in enumerate(answers):
        assert same_bits(answer["spread"], alone), f"rank {rank} has other bits than one rank alone"
    wanted = answers[0]["expected"]
    fault = elementwise([alone], [wanted], CATALOGUE["experts"].tolerances["float32"])
    assert not fault, fault


def test_the_level_that_was_declared_is_the_level_that_holds(subject: Subject, seed: int, note: Note) -> None:
    """Measures all that can be measured here, writes it to the card, and fails where less holds than was declared."""
    level, faults = Determinism.NONE, [fault for name in CATALOGUE for fault in repeated(subject, name, seed)]
    if not faults:
        level, faults = Determinism.SAME_BATCH, [fault for name in HELD for fault in mixed_up(subject, name, seed)]
    if not faults:
        level = Determinism.BATCH_INVARIANT
        if "all_reduce" in subject.capabilities.collectives:
            assert_rank_invariant(subject, seed)
            level = Determinism.RANK_INVARIANT
    note("determinism", "measured", int(level))
    declared = subject.capabilities.determinism
    assert level >= declared, f"declared D{int(declared)}, measured D{int(level)}:\n" + "\n".join(faults[:20])
