"""What the op tests measure with: yardsticks, float64 formulas, fences, layouts and the tables of rows."""

import inspect

import pytest
import torch

from deepinfer_conformance import op_rows
from deepinfer_conformance.canary import GUARD, Fence
from deepinfer_conformance.formulas import FORMULAS
from deepinfer_conformance.inputs import LAYOUTS, expected, host_cases, is_claimed, map_tensors, op_params, spread
from deepinfer_conformance.large import LARGE, large_case
from deepinfer_conformance.yardstick import MOST, Errors, elementwise
from deepinfer_core.interfaces.backend import Capabilities
from deepinfer_core.interfaces.ops import RowFormat, Tolerance, Weight, WeightFormat
from deepinfer_core.ops.catalogue import CATALOGUE

NONE = Tolerance(0.0, 0.0)


def test_every_op_rounds_or_is_exact():
    """An op with a tolerance has a formula that says how far from the truth it may be."""
    rounding = {name for name, spec in CATALOGUE.items() if any(one != NONE for one in spec.tolerances.values())}
    assert rounding == set(FORMULAS)


def test_every_op_says_what_its_rows_are():
    covered = [*op_rows.ROW_PARAMETERS, *op_rows.REQUEST_PARAMETERS, *op_rows.POOL_PARAMETERS, *op_rows.BY_EXPERT]
    assert sorted(covered) == sorted(CATALOGUE)


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_a_formula_agrees_with_the_reference_to_its_rounding(name):
    """Both were written from the same definition, by different means."""
    spec, tried = CATALOGUE[name], 0
    for case in host_cases(spec, "float32", 5):
        exact = FORMULAS[name](**case.arguments)
        numbers = exact if isinstance(exact, tuple) else [exact]
        for one, true in zip(expected(spec, case.arguments), numbers, strict=True):
            if true is not None:
                real = one.isfinite()
                torch.testing.assert_close(one[real].double(), true[real], atol=1e-4, rtol=1e-4)
                tried += one.numel()
    assert tried


@pytest.mark.parametrize("name", LARGE)
def test_a_large_case_fits_its_op(name):
    capabilities = Capabilities(weight_formats=tuple(WeightFormat), kv_formats=tuple(RowFormat))
    arguments = large_case(name, torch.float32, 0, capabilities)
    assert is_claimed(arguments, capabilities)
    assert set(arguments) <= set(inspect.signature(CATALOGUE[name].reference).parameters)


# --- yardsticks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actual", "said"),
    [
        ([torch.tensor([1.0, 2.5])], "not close"),
        ([torch.tensor([1.0, float("nan")])], "not close"),
        ([torch.tensor([1.0, 2.0, 3.0])], "is float32 [3], not float32 [2]"),
        ([torch.tensor([1, 2])], "is int64 [2], not float32 [2]"),
        ([torch.tensor([1.0, 2.0]), torch.tensor([1.0])], "gives 2 tensors, not 1"),
        ([], "gives 0 tensors, not 1"),
    ],
)
def test_what_differs_is_said(actual, said):
    assert said in elementwise(actual, [torch.tensor([1.0, 2.0])], Tolerance(0.1, 0.1))


def test_what_is_within_the_tolerance_is_right():
    nan = float("nan")
    assert not elementwise([torch.tensor([1.05, nan])], [torch.tensor([1.0, nan])], Tolerance(0.01, 0.05))
    assert elementwise([torch.tensor([1.05])], [torch.tensor([1.0])], NONE)


@pytest.mark.parametrize(("spacings", "allowed"), [(0.0, True), (1.9, True), (2.1, False), (50.0, False)])
def test_twice_the_references_error_is_the_limit(spacings, allowed):
    exact = torch.linspace(1, 2, 101, dtype=torch.float64)
    reference = (exact + 1e-4).float()
    actual = (exact - spacings * 1e-4).float()
    assert (Errors().add(actual, reference, exact) <= MOST) == allowed


def test_a_perfect_reference_still_leaves_room_for_rounding():
    exact = torch.linspace(1, 2, 101, dtype=torch.float64).bfloat16().double()
    near = (exact.bfloat16().view(torch.int16) + 1).view(torch.bfloat16)
    assert Errors().add(exact.bfloat16(), exact.bfloat16(), exact) == 0
    assert 0 < Errors().add(near, exact.bfloat16(), exact) <= MOST
    far = (exact.bfloat16().view(torch.int16) + 4).view(torch.bfloat16)
    assert Errors().add(far, exact.bfloat16(), exact) > MOST


def test_an_ops_error_is_that_of_all_its_cases_together():
    """One case with few numbers, in which the reference happened to be exact, condemns nobody; a bad format does."""
    exact = torch.linspace(1, 2, 101, dtype=torch.float64)
    reference, errors = (exact + 1e-4).float(), Errors()
    for spacings in [1.0] * 9 + [5.0]:
        errors.add((exact - spacings * 1e-4).float(), reference, exact)
    assert 1 < errors.ratio < MOST
    errors.add((exact - 40e-4).float(), reference, exact)
    assert errors.ratio > MOST
    assert Errors().ratio == 0


def test_infinite_numbers_have_no_error():
    exact = torch.tensor([float("-inf"), float("nan")], dtype=torch.float64)
    assert Errors().add(exact.float(), exact.float(), exact) == 0


# --- fences and layouts ----------------------------------------------------------------------------------------------

FENCED = [torch.arange(6.0).view(2, 3), torch.arange(4, dtype=torch.int32), torch.zeros(0, 4), torch.tensor([True])]


@pytest.mark.parametrize("x", FENCED, ids=["float32", "int32", "empty", "bool"])
def test_a_fence_holds_the_same_numbers_and_stays_whole(x):
    fence = Fence()
    assert fence.around(x).equal(x)
    assert fence.breaches([]) == []


@pytest.mark.parametrize("byte", [0, GUARD - 1, GUARD + 24, 2 * GUARD + 23])
def test_a_byte_beside_an_input_is_a_breach_even_where_the_input_may_be_written(byte):
    fence = Fence()
    inner = fence.around(FENCED[0])
    torch.empty(0, dtype=torch.uint8).set_(inner.untyped_storage(), 0, (2 * GUARD + 24,), (1,))[byte] = 0
    assert f"from byte {byte - GUARD} on (1 bytes)" in fence.breaches([inner])[0]


def test_an_input_may_be_written_where_the_op_says_so():
    fence = Fence()
    inner = fence.around(FENCED[0])
    inner[1, 2] = 7
    assert fence.breaches([inner]) == []
    assert len(fence.breaches([])) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (0, 4), (2, 3, 4)])
def test_a_layout_changes_no_number(layout, shape):
    x = torch.randn(shape).bfloat16()
    there = layout(x)
    assert there.equal(x)
    assert there.shape == x.shape


def test_pools_and_weights_stay_in_one_piece():
    weight = Weight(torch.ones(4, 4), WeightFormat.F32)
    arguments = {"x": torch.ones(3, 4), "pool": torch.ones(3, 4), "weight": weight}
    for layout in LAYOUTS:
        there = spread(arguments, layout)
        assert not there["x"].is_contiguous()
        assert there["pool"].is_contiguous()
        assert there["weight"] is weight


def test_every_tensor_of_the_arguments_is_mapped():
    seen = []
    for case in host_cases(CATALOGUE["sparse_attention"], "float32", 0):
        map_tensors(case.arguments, lambda x: seen.append(x) or x)
        break
    assert len(seen) == 9  # q, six columns of rows, the window's pool, the sink


# --- formats and dtypes ----------------------------------------------------------------------------------------------


def test_a_case_in_a_format_that_is_not_claimed_is_left_out():
    few = Capabilities(weight_formats=(WeightFormat.BF16,), kv_formats=(RowFormat.BF16,))
    linear, attention = (
        [case for case in host_cases(CATALOGUE[name], "float32", 0) if is_claimed(case.arguments, few)]
        for name in ("linear", "sparse_attention")
    )
    assert {case.arguments["weight"].format for case in linear} == {WeightFormat.BF16}
    assert {case.arguments["window"].format for case in attention} == {RowFormat.BF16}


def test_an_op_is_asked_for_in_its_own_dtypes():
    assert [one.id for one in op_params("linear", "sample_tokens")] == [
        "linear-float32",
        "linear-bfloat16",
        "sample_tokens-float32",
    ]
