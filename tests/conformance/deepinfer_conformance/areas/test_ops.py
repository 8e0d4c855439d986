"""Ops: every kernel of the backend against its reference, in every dtype, on every shape, layout and kind of number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from deepinfer_conformance.canary import Fence
from deepinfer_conformance.formulas import FORMULAS
from deepinfer_conformance.inputs import (
    LAYOUTS,
    Arguments,
    Case,
    computed,
    expected,
    given,
    host_cases,
    is_claimed,
    map_tensors,
    op_params,
    real_rows,
    spread,
    tensors,
)
from deepinfer_conformance.large import LARGE, large_case
from deepinfer_conformance.op_rows import ROW_PARAMETERS, row_count, row_size, with_rows
from deepinfer_conformance.records import Note
from deepinfer_conformance.specials import FLOAT_OPS, SPECIALS, special_case
from deepinfer_conformance.subject import Subject
from deepinfer_conformance.yardstick import MOST, Errors, elementwise
from deepinfer_core.interfaces.ops import OpSpec, Tolerance
from deepinfer_core.ops.catalogue import CATALOGUE
from deepinfer_core.ops.table import OpTable

each_op = pytest.mark.parametrize(("name", "op_dtype"), op_params())
each_row_op = pytest.mark.parametrize(("name", "op_dtype"), op_params(*sorted(ROW_PARAMETERS)))
each_rounding_op = pytest.mark.parametrize(("name", "op_dtype"), op_params(*sorted(FORMULAS)))
each_float_op = pytest.mark.parametrize(("name", "op_dtype"), op_params(*FLOAT_OPS))
each_large_op = pytest.mark.parametrize(("name", "op_dtype"), op_params(*LARGE))

SEEDS = 4  # further seeds at level full
MOST_NUMBERS = 1 << 20  # in an input whose rows are repeated; whole vocabularies have a test of their own
TINY = float(torch.finfo(torch.float32).tiny)  # a device may flush what is smaller to zero


def claimed_cases(subject: Subject, spec: OpSpec, dtype: str, seed: int) -> list[Case]:
    cases = [case for case in host_cases(spec, dtype, seed) if is_claimed(case.arguments, subject.capabilities)]
    assert cases, f"the backend claims no format in which {spec.name} has a case: it cannot serve any model"
    return cases


def difference(subject: Subject, spec: OpSpec, dtype: str, arguments: Arguments, slack: float = 0.0) -> str:
    """What sets the backend's results apart from the reference's, padding rows aside; empty when nothing does."""
    actual = real_rows(arguments, computed(subject, spec, arguments))
    wanted = real_rows(arguments, expected(spec, arguments))
    return elementwise(actual, wanted, spec.tolerances[dtype], slack)


def none_of(faults: Iterator[tuple[str, str]]) -> None:
    """Every case is tried before the test fails, so that its message names them all."""
    texts = [f"{case}: {fault}" for case, fault in faults if fault]
    assert not texts, "\n".join(texts)


@pytest.mark.level("smoke")
def test_every_op_resolves(ops: OpTable) -> None:
    assert all(callable(getattr(ops, name)) for name in CATALOGUE)


@pytest.mark.level("smoke")
@each_op
def test_an_op_agrees_with_its_reference(subject: Subject, seed: int, note: Note, name: str, op_dtype: str) -> None:
    spec = CATALOGUE[name]
    cases = claimed_cases(subject, spec, op_dtype, seed)
    left = [one.name for one in host_cases(spec, op_dtype, seed) if one.name not in {case.name for case in cases}]
    if left:
        note("left_out", name, "\n".join(left))
    none_of((case.name, difference(subject, spec, op_dtype, case.arguments)) for case in cases)


@pytest.mark.level("full")
@each_op
def test_an_op_agrees_with_its_reference_on_further_seeds(
    subject: Subject, seed: int, name: str, op_dtype: str
) -> None:
    spec = CATALOGUE[name]
    none_of(
        (f"{case.name}, seed {one}", difference(subject, spec, op_dtype, case.arguments))
        for one in range(seed + 1, seed + 1 + SEEDS)
        for case in claimed_cases(subject, spec, op_dtype, one)
    )


@each_rounding_op
def test_an_ops_error_is_at_most_twice_the_references(
    subject: Subject, seed: int, note: Note, name: str, op_dtype: str
) -> None:
    """Against float64. Cases that quantise what they computed are left to the comparison with the reference."""
    spec, errors, by_case = CATALOGUE[name], Errors(), {}
    for case in claimed_cases(subject, spec, op_dtype, seed):
        exact = exact_results(spec, case.arguments)
        actual, reference = computed(subject, spec, case.arguments), expected(spec, case.arguments)
        for one, other, true in zip(actual, reference, exact, strict=True):
            if true is not None:
                by_case[case.name] = errors.add(*real_rows(case.arguments, [one, other, true]))
    note("error", name, errors.ratio)
    worst = max(by_case, key=by_case.__getitem__, default="no case")
    assert errors.ratio <= MOST, f"{errors.ratio:.2f} times the reference's error, {MOST:g} are allowed; worst: {worst}"


def exact_results(spec: OpSpec, arguments: Arguments) -> list[Tensor | None]:
    """The op's results in float64, None for those that have none."""
    found = FORMULAS[spec.name](**arguments)
    return list(found) if isinstance(found, tuple) else [found] * len(expected(spec, arguments))


@pytest.mark.parametrize("rows", [0, 1, 7, 1025])
@each_row_op
def test_an_op_takes_any_number_of_rows(subject: Subject, seed: int, name: str, op_dtype: str, rows: int) -> None:
    spec = CATALOGUE[name]
    cases = [case for case in claimed_cases(subject, spec, op_dtype, seed) if row_count(name, case.arguments)]
    small = [case for case in cases if row_size(name, case.arguments) * rows <= MOST_NUMBERS]
    none_of((case.name, difference(subject, spec, op_dtype, with_rows(name, case.arguments, rows))) for case in small)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@each_op
def test_an_op_takes_inputs_that_do_not_lie_in_one_piece(
    subject: Subject, seed: int, name: str, op_dtype: str, layout: Callable[[Tensor], Tensor]
) -> None:
    spec = CATALOGUE[name]

    def fault(arguments: Arguments) -> str:
        there = map_tensors(arguments, lambda x: x.clone().to(subject.torch_device))
        actual = real_rows(arguments, given(subject, spec, spread(there, layout)))
        return elementwise(actual, real_rows(arguments, expected(spec, arguments)), spec.tolerances[op_dtype])

    none_of((case.name, fault(case.arguments)) for case in claimed_cases(subject, spec, op_dtype, seed))


@each_op
def test_an_op_writes_nothing_but_its_results(subject: Subject, seed: int, name: str, op_dtype: str) -> None:
    """Around every input stand canaries, and pools are compared whole: a row that was not named keeps its bytes."""
    spec = CATALOGUE[name]

    def faults(arguments: Arguments) -> str:
        fence = Fence()
        there = map_tensors(arguments, lambda x: fence.around(x.to(subject.torch_device)))
        actual = real_rows(arguments, given(subject, spec, there))
        wanted = real_rows(arguments, expected(spec, arguments))
        breaches = fence.breaches([there[parameter] for parameter in spec.mutates])
        return "; ".join(filter(None, [*breaches, elementwise(actual, wanted, spec.tolerances[op_dtype])]))

    none_of((case.name, faults(case.arguments)) for case in claimed_cases(subject, spec, op_dtype, seed))


@pytest.mark.parametrize("poison", [0xFF, 0x7F, 0x00], ids=["nan", "huge", "zero"])
@pytest.mark.parametrize(("name", "op_dtype"), op_params("compress_kv", "index_scores", "sparse_attention"))
def test_an_op_reads_no_row_that_is_not_its_own(
    subject: Subject, seed: int, name: str, op_dtype: str, poison: int
) -> None:
    """Pool rows beyond a request's length, of other slots and between blocks hold NaN, huge numbers or zeros."""
    spec = CATALOGUE[name]

    def poisoned(x: Tensor) -> Tensor:
        unseen = (x == 0xFF).all(-1) if x.dtype == torch.uint8 and x.dim() == 2 else None
        return x if unseen is None else torch.where(unseen[:, None], poison, x).to(torch.uint8)

    none_of(
        (case.name, _against(subject, spec, op_dtype, map_tensors(case.arguments, poisoned), case.arguments))
        for case in claimed_cases(subject, spec, op_dtype, seed)
    )


def _against(subject: Subject, spec: OpSpec, dtype: str, arguments: Arguments, clean: Arguments) -> str:
    actual = real_rows(arguments, computed(subject, spec, arguments))
    return elementwise(actual, real_rows(clean, expected(spec, clean)), spec.tolerances[dtype])


@pytest.mark.parametrize("special", SPECIALS)
@each_float_op
def test_special_numbers_stay_in_their_row(subject: Subject, seed: int, name: str, op_dtype: str, special: str) -> None:
    """Other rows are as before, and a row that the reference makes not finite is not finite: the engine fails such a
    request, and it alone."""
    spec = CATALOGUE[name]

    def fault(case: Case) -> str:
        arguments, marked = special_case(name, case.arguments, special)
        actual, wanted = computed(subject, spec, arguments), expected(spec, arguments)
        kept = elementwise([x[~marked] for x in actual], [x[~marked] for x in wanted], spec.tolerances[op_dtype])
        return kept or lost_signal([x[marked] for x in actual], [x[marked] for x in wanted], spec.tolerances[op_dtype])

    cases = [one for one in claimed_cases(subject, spec, op_dtype, seed) if row_count(name, one.arguments) > 1]
    none_of((case.name, fault(case)) for case in cases)


def lost_signal(actual: list[Tensor], wanted: list[Tensor], tolerance: Tolerance) -> str:
    """What is wrong with the row that holds the special number."""
    for one, other in zip(actual, wanted, strict=True):
        if not other.is_floating_point():
            continue
        if bool(other.isfinite().all()):
            if fault := elementwise([one], [other], tolerance, TINY):
                return fault
        elif bool(one.isfinite().all()):
            return "the row is not finite in the reference and came out finite"
    return ""


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_row_of_hopeless_logits_still_draws_an_id(subject: Subject, bad: float) -> None:
    logits = torch.zeros(3, 301)
    logits[1] = bad
    logits[0, 7] = logits[2, 9] = 5.0
    keys: list[Any] = [torch.tensor(values) for values in ([1, 2, 3], [0, 0, 0], [4, 5, 6])]
    spec = CATALOGUE["sample_tokens"]
    for temperature in (None, torch.full((3,), 0.01)):
        names = ("logits", "temperature", "top_k", "top_p", "min_p", "seed", "sample", "position")
        (tokens,) = computed(
            subject, spec, dict(zip(names, (logits, temperature, None, None, None, *keys), strict=True))
        )
        assert [int(tokens[0]), int(tokens[2])] == [7, 9]
        assert 0 <= int(tokens[1]) < 301


def test_experts_chosen_for_a_row_of_nan_exist(subject: Subject, seed: int) -> None:
    spec = CATALOGUE["route"]
    for case in claimed_cases(subject, spec, "float32", seed):
        if len(case.arguments["x"]):
            arguments = dict(case.arguments) | {"x": torch.full_like(case.arguments["x"], float("nan"))}
            chosen, _ = computed(subject, spec, arguments)
            count = arguments["gate"].out_features
            assert bool(((chosen >= 0) & (chosen < count)).all()), f"{case.name}: {chosen.tolist()} of {count}"
            assert all(len(set(row)) == len(row) for row in chosen.tolist()), case.name


@pytest.mark.level("full")
@each_large_op
def test_an_op_is_right_at_the_sizes_of_a_large_model(subject: Subject, seed: int, name: str, op_dtype: str) -> None:
    """Against float64 where there is a formula: sums are so long here that the reference's own rounding shows."""
    spec = CATALOGUE[name]
    arguments = large_case(name, getattr(torch, op_dtype), seed, subject.capabilities)
    wanted, slack, tolerance = expected(spec, arguments), 0.0, spec.tolerances[op_dtype]
    if name in FORMULAS:
        exact = exact_results(spec, arguments)
        wanted = [one if true is None else true.to(one.dtype) for one, true in zip(wanted, exact, strict=True)]
        slack = tolerance.relative * max(typical_size(true) for true in exact if true is not None)
    fault = elementwise(computed(subject, spec, arguments), wanted, tolerance, slack)
    assert not fault, fault


def typical_size(x: Tensor) -> float:
    """The root mean square of the finite numbers: what a sum that cancels out was made of."""
    return float(x[x.isfinite()].square().mean().sqrt())


@each_op
def test_an_op_does_not_depend_on_the_programs_default_dtype(
    subject: Subject, seed: int, name: str, op_dtype: str
) -> None:
    spec = CATALOGUE[name]

    def fault(arguments: Arguments) -> str:
        wanted = expected(spec, arguments)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            actual = computed(subject, spec, arguments)
        finally:
            torch.set_default_dtype(before)
        return elementwise(real_rows(arguments, actual), real_rows(arguments, wanted), spec.tolerances[op_dtype])

    none_of((case.name, fault(case.arguments)) for case in claimed_cases(subject, spec, op_dtype, seed))


@pytest.mark.level("smoke")
@each_op
def test_an_op_runs_without_gradients_being_recorded(subject: Subject, seed: int, name: str, op_dtype: str) -> None:
    """Weights are no parameters to be trained: what an op gives needs no gradient, so that nothing is kept for one."""
    spec = CATALOGUE[name]
    case = claimed_cases(subject, spec, op_dtype, seed)[-1]
    there = map_tensors(case.arguments, lambda x: x.clone().to(subject.torch_device))
    kernel = getattr(subject.ops, name)
    assert not any(x.requires_grad for x in subject.run(lambda: tensors(kernel(**there))))
