"""The CPU kernels: each agrees with its reference on every case, on every instruction set that runs here, in any
program. That a row's bits are its own is in `test_row_invariance.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpCase, Weight, WeightFormat
from deepinfer_core.ops.cases import Maker
from deepinfer_core.ops.catalogue import CATALOGUE
from deepinfer_core.ops.table import resolve
from deepinfer_cpu import _kernels
from deepinfer_cpu.kernels import kernels

CPU = torch.device("cpu")


def _runs(isa: str) -> bool:
    try:
        _kernels.Table(isa)
    except ValueError:
        return False
    return True


SETS = [isa for isa in ("generic", "avx2", "avx512") if _runs(isa)]
NAMES = sorted(kernels())


@pytest.fixture(params=SETS)
def isa(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = _kernels.threads()
    yield _kernels.set_threads
    _kernels.set_threads(before)


def tensors(result: object) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [x for x in result if isinstance(x, Tensor)] if isinstance(result, tuple) else []


def copied(case: OpCase) -> tuple[object, ...]:
    return tuple(x.clone() if isinstance(x, Tensor) else x for x in case.args)


def test_every_op_has_a_kernel_with_its_references_signature(isa: str) -> None:
    assert resolve(kernels(isa)).fallbacks == ()


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(ValueError, match="mmx"):
        _kernels.Table("mmx")


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_agrees_with_its_reference_on_every_case(name: str, isa: str) -> None:
    spec, kernel = CATALOGUE[name], kernels(isa)[name]
    for case in spec.cases(CPU, torch.float32, seed=3):
        wanted_args, given_args = copied(case), copied(case)
        wanted = tensors(spec.reference(*wanted_args, **case.kwargs))
        result = tensors(kernel(*given_args, **case.kwargs))
        if spec.mutates:
            wanted, result = [wanted_args[0]], [given_args[0]]
        tolerance = spec.tolerances["float32"]
        for expected, actual in zip(wanted, result, strict=True):
            torch.testing.assert_close(
                actual,
                expected,
                atol=tolerance.absolute,
                rtol=tolerance.relative,
                equal_nan=True,
                msg=lambda text, case=case: f"{name}, {case.name}: {text}",
            )


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_threads_changes_no_bit(name: str, threads: Callable[[int], None]) -> None:
    spec, kernel = CATALOGUE[name], kernels()[name]
    for case in spec.cases(CPU, torch.float32, seed=4):
        results = []
        for count in (1, 3):
            threads(count)
            args = copied(case)
            results.append([*tensors(kernel(*args, **case.kwargs)), *(tensors(args[:1]) if spec.mutates else [])])
        for one, three in zip(*results, strict=True):
            assert bits(one).equal(bits(three)), case.name


@pytest.mark.parametrize("quantise", [False, True])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("width", [1, 31, 33, 100])
def test_an_fp8_matrix_may_end_in_a_short_block(width: int, rows: int, quantise: bool, isa: str) -> None:
    make = Maker(CPU, torch.float32, 9)
    data = make.normal(70, width).to(torch.float8_e4m3fn)
    scale = make.integers(120, 130, 3, -(-width // 32)).to(torch.uint8)
    args = (make.normal(rows, width), Weight(data, WeightFormat.FP8, scale), quantise)
    expected = CATALOGUE["linear"].reference(*args)
    torch.testing.assert_close(kernels(isa)["linear"](*args), expected, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_the_programs_default_dtype_changes_nothing(name: str, default: torch.dtype) -> None:
    spec, kernel = CATALOGUE[name], kernels()[name]
    for case in spec.cases(CPU, torch.float32, seed=6):
        args, again = copied(case), copied(case)
        expected = tensors(kernel(*args, **case.kwargs))
        before = torch.get_default_dtype()
        torch.set_default_dtype(default)
        try:
            actual = tensors(kernel(*again, **case.kwargs))
        finally:
            torch.set_default_dtype(before)
        for one, other in zip(expected, actual, strict=True):
            assert bits(one).equal(bits(other)), case.name


def test_memory_that_runs_out_on_a_worker_is_an_error_of_the_call(threads: Callable[[int], None]) -> None:
    threads(3)
    attend, failed = kernels()["sparse_attention"], 0
    for case in CATALOGUE["sparse_attention"].cases(CPU, torch.float32, seed=8):
        q, rows, window, *rest = case.args
        if len(rows) < 2:
            continue
        with pytest.raises(MemoryError):
            attend(q, rows, replace(window, window=1 << 45), *rest)
        attend(*case.args)  # the workers live on
        failed += 1
    assert failed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform does not fork")
def test_kernels_run_in_a_forked_child() -> None:
    """A child has none of its parent's workers. In a program of its own: pytest's must not be forked."""
    program = """
import os, warnings, torch
from deepinfer_core.interfaces.ops import Weight, WeightFormat
from deepinfer_cpu import _kernels
from deepinfer_cpu.kernels import kernels
warnings.simplefilter("ignore")
_kernels.set_threads(3)
x, linear = torch.ones(64, 128), kernels()["linear"]
weight = Weight(torch.ones(256, 128), WeightFormat.F32)
linear(x, weight, False)
child = os.fork()
result = linear(x, weight, False)
assert bool((result == 128).all()) and _kernels.threads() == 3
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8) if x.numel() else x


def test_fp8_weights_are_decoded_exactly(isa: str) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    data = torch.where(codes.float().isnan(), 0.0, codes.float())
    weight = Weight(
        data.to(torch.float8_e4m3fn).view(8, 32), WeightFormat.FP8, torch.tensor([[127]], dtype=torch.uint8)
    )
    result = kernels(isa)["linear"](torch.eye(32), weight, False)
    assert result.T.contiguous().equal(data.view(8, 32))


@pytest.mark.parametrize("name", ["rms_norm", "linear", "lm_head", "route"])
def test_arguments_that_do_not_fit_are_refused_not_read_past(name: str) -> None:
    x, narrow = torch.ones(3, 64), Weight(torch.ones(8, 32), WeightFormat.F32)
    calls = {
        "rms_norm": (x, torch.ones(7), 1e-6),
        "linear": (x, narrow, False),
        "lm_head": (x, narrow),
        "route": (x, narrow, torch.zeros(8), 2, 1.0),
    }
    with pytest.raises(ValueError, match="are needed"):
        kernels()[name](*calls[name])
