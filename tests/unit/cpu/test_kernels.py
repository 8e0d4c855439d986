"""The CPU kernels: each agrees with its reference on every case, on every instruction set that runs here, in any
program. That a row's bits are its own is in `test_row_invariance.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpCase, RowFormat, Rows, Weight, WeightFormat
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


def matrix(outputs: int, inputs: int) -> Weight:
    return Weight(torch.ones(outputs, inputs), WeightFormat.F32)


def rows_of(count: int, dtype: torch.dtype = torch.int32) -> Rows:
    return Rows(*(torch.zeros(count, dtype=dtype) for _ in range(6)))


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


X, STREAMS, TOKENS, HISTORY = torch.ones(3, 64), torch.ones(3, 4, 8), torch.arange(3), torch.zeros(2, 5).long()
MISFITS = [
    ("rms_norm", (X, torch.ones(7), 1e-6)),
    ("apply_rope", (X, ints(1, 2), torch.ones(4))),
    ("hc_mixes", (STREAMS, torch.ones(24, 31), torch.ones(24), torch.ones(3), 1e-6, 1e-6, 1)),
    ("hc_mixes", (STREAMS, torch.ones(24, 32), torch.ones(23), torch.ones(3), 1e-6, 1e-6, 1)),
    ("hc_collapse", (STREAMS, torch.ones(3, 3))),
    ("hc_expand", (torch.ones(3, 7), STREAMS, torch.ones(3, 4), torch.ones(3, 4, 4))),
    ("hc_expand", (torch.ones(3, 8), STREAMS, torch.ones(3, 4), torch.ones(3, 4, 3))),
    ("linear", (X, matrix(8, 32), False)),
    ("lm_head", (X, matrix(8, 32))),
    ("grouped_linear", (torch.ones(2, 0, 4), matrix(8, 4))),
    ("grouped_linear", (torch.ones(2, 3, 4), matrix(8, 4))),
    ("gated_mlp", (X, matrix(8, 64), matrix(1, 64), matrix(64, 8), 10.0, False)),
    ("gated_mlp", (X, matrix(8, 64), matrix(8, 64), matrix(64, 1000), 10.0, False)),
    ("route", (X, matrix(8, 32), torch.zeros(8), 2, 1.0)),
    ("moe_combine", (torch.ones(0, 4), ints(), 0)),
    ("moe_combine", (torch.ones(4, 4), ints(0, 1, 2), 2)),
    ("select_blocks", (torch.ones(1, 4), ints(4), 0, 1)),
    ("select_blocks", (torch.ones(2, 4), ints(4), 2, 1)),
    ("select_topk", (torch.ones(2, 4), 2, torch.ones(2, 1, dtype=torch.bool), 2)),
    ("compress_kv", (X, torch.ones(3, 63), torch.zeros(2, 8).byte(), rows_of(3), 2, 2)),
    ("gather_history", (TOKENS, rows_of(2), HISTORY, 2)),
    ("gather_history", (TOKENS, rows_of(3, torch.int64), HISTORY, 2)),
    ("hash_ngrams", (torch.zeros(3, 2).long(), TOKENS, TOKENS, TOKENS, 0)),
    ("embedding", (torch.tensor([10**10]), matrix(4, 8), torch.float32)),
    ("apply_token_mask", (torch.ones(4, 3200), ints(-1)[None])),
    ("apply_penalties", (torch.ones(4, 4), torch.zeros(4, 4).bool(), torch.zeros(4, 4).int(), *[torch.ones(0)] * 3)),
    ("top_logprobs", (torch.ones(2, 8), torch.tensor([0, 10**8]), 2)),
    ("top_logprobs", (torch.ones(2, 8), torch.tensor([0]), 2)),
    ("sample_tokens", (torch.ones(2, 8), torch.ones(1), None, None, None, *[torch.zeros(2).long()] * 3)),
    ("verify_drafts", (torch.zeros(2, 3).long(), torch.zeros(2, 3).long(), ints(3, 3))),
    ("write_rows", (torch.zeros(8, 32).byte(), torch.ones(3, 8), TOKENS[:2], RowFormat.F32)),
    ("copy_rows", (torch.zeros(8, 32).byte(), TOKENS[:2], TOKENS)),
]


@pytest.mark.parametrize(("name", "arguments"), MISFITS, ids=[name for name, _ in MISFITS])
def test_arguments_that_do_not_fit_are_refused_not_read_past(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="are needed|at least 1|is not one of|must be contiguous int32"):
        kernels()[name](*arguments)
