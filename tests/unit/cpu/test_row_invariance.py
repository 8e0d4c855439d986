"""The law of the catalogue on the CPU: every op gives a row the same bits alone, in any other batch and on any number
of threads. `test_kernels.py` compares with the references."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepinfer_conformance.op_rows import BY_EXPERT, POOL_PARAMETERS, REQUEST_PARAMETERS, ROW_PARAMETERS
from deepinfer_core.interfaces.ops import OpCase, Rows, Weight, WeightFormat
from deepinfer_core.ops.cases import Maker
from deepinfer_core.ops.catalogue import CATALOGUE
from deepinfer_cpu import _kernels
from deepinfer_cpu.kernels import kernels

CPU = torch.device("cpu")
KERNELS = kernels()


def test_every_op_of_the_catalogue_is_held_to_the_law() -> None:
    covered = [*ROW_PARAMETERS, *REQUEST_PARAMETERS, *POOL_PARAMETERS, *BY_EXPERT]
    assert sorted(covered) == sorted(CATALOGUE)


def bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8) if x.numel() else x


def same(one: object, other: object) -> bool:
    pairs = zip(_tensors(one), _tensors(other), strict=True)
    return all(a.shape == b.shape and bits(a).equal(bits(b)) for a, b in pairs)


def _tensors(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [x for x in result if isinstance(x, Tensor)]


def bound(name: str, case: OpCase) -> dict[str, Any]:
    return dict(inspect.signature(CATALOGUE[name].reference).bind(*case.args, **case.kwargs).arguments)


def some(x: Any, index: Tensor) -> Any:
    if isinstance(x, Rows):
        return Rows(*(getattr(x, f.name)[index].contiguous() for f in fields(Rows)))
    return None if x is None else x[index].contiguous()


def picked(name: str, parameters: tuple[str, ...], arguments: dict[str, Any], index: Tensor) -> dict[str, Any]:
    return {key: some(x, index) if key in parameters else x for key, x in arguments.items()}


def cases_with_rows(name: str, parameter: str) -> Iterator[tuple[dict[str, Any], int]]:
    for case in CATALOGUE[name].cases(CPU, torch.float32, seed=6):
        arguments = bound(name, case)
        if rows := len(arguments[parameter]):
            yield arguments, rows


@pytest.mark.parametrize("name", sorted(ROW_PARAMETERS))
@settings(max_examples=10, deadline=None)
@given(drawn=st.lists(st.integers(0, 10**6), min_size=1, max_size=40))
def test_a_row_has_its_bits_in_any_batch(name: str, drawn: list[int]) -> None:
    parameters, tried = ROW_PARAMETERS[name], 0
    for arguments, rows in cases_with_rows(name, parameters[0]):
        index = torch.tensor(drawn) % rows
        whole, part = KERNELS[name](**arguments), KERNELS[name](**picked(name, parameters, arguments, index))
        assert same([x[index] for x in _tensors(whole)], part)
        tried += 1
    assert tried


@pytest.mark.parametrize("name", sorted(REQUEST_PARAMETERS))
def test_a_requests_rows_have_their_bits_alone(name: str) -> None:
    parameters, tried = REQUEST_PARAMETERS[name], 0
    for arguments, _ in cases_with_rows(name, parameters[0]):
        whole, rows = KERNELS[name](**arguments), arguments["rows"]
        assert isinstance(rows, Rows)
        for slot in rows.slot.unique():
            index = (rows.slot == slot).nonzero().flatten()
            alone = picked(name, parameters, arguments, index)
            if slot >= 0:
                alone["rows"].first_row.zero_()
            assert same(whole[index], KERNELS[name](**alone))
            tried += 1
    assert tried


@pytest.mark.parametrize("name", sorted(POOL_PARAMETERS))
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_pool_row_has_its_bytes_whatever_is_written_beside_it(name: str, data: st.DataObject) -> None:
    parameters, tried = POOL_PARAMETERS[name], 0
    for arguments, rows in cases_with_rows(name, "dest"):
        dest = arguments["dest"]
        assert isinstance(dest, Tensor)
        chosen = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, unique=True))
        index = torch.tensor(chosen)
        whole, part = (arguments | {"pool": arguments["pool"].clone()} for _ in range(2))
        KERNELS[name](**whole)
        KERNELS[name](**picked(name, parameters, part, index))
        written = dest[index][dest[index] >= 0]
        assert same(whole["pool"][written], part["pool"][written])
        tried += 1
    assert tried


# Sizes at which blocks of rows and columns, decoded copies and threads all come into play.
RowCall = Callable[[Tensor], object]


def _matrix_calls(rows: int) -> dict[str, RowCall]:
    make, k = Maker(CPU, torch.float32, 5), KERNELS
    x, heads = make.normal(rows, 160), make.normal(rows, 3, 64)
    formats = (WeightFormat.F32, WeightFormat.BF16, WeightFormat.FP8, WeightFormat.FP4)
    w = {format: make.weight(format, 130, 160) for format in formats}
    down = {format: make.weight(format, 160, 128) for format in formats}
    up = {format: make.weight(format, 128, 160) for format in formats}
    grouped = make.weight(WeightFormat.FP8, 3 * 40, 64)
    calls: dict[str, RowCall] = {
        "grouped_linear": lambda i: k["grouped_linear"](heads[i], grouped),
        "lm_head": lambda i: k["lm_head"](x[i], w[WeightFormat.BF16]),
    }
    for f in formats:
        calls[f"linear {f.value}"] = lambda i, f=f: k["linear"](x[i], w[f], True)
        calls[f"gated_mlp {f.value}"] = lambda i, f=f: k["gated_mlp"](x[i], up[f], up[f], down[f], 10.0, True)
        calls[f"experts {f.value}"] = _expert_call(make, x, f)
    return calls


def _expert_call(make: Maker, x: Tensor, format: WeightFormat) -> RowCall:
    k, top_k, count = KERNELS, 2, 5
    chosen = make.integers(0, count, len(x), top_k, dtype=torch.int32)
    routing = make.normal(len(x), top_k).abs()
    w1, w3 = (make.weight(format, count, 64, 160) for _ in range(2))
    w2 = make.weight(format, count, 160, 64)

    def call(i: Tensor) -> Tensor:
        order, offsets = k["moe_permute"](chosen[i], count)
        y = k["experts"](x[i], order, offsets, routing[i], w1, w3, w2, 10.0, True)
        return k["moe_combine"](y, order, top_k)

    return call


@pytest.mark.parametrize("name", sorted(_matrix_calls(1)))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_rows_products_have_their_bits_in_any_batch(name: str, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 70))
    index = torch.tensor(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=rows)))
    call = _matrix_calls(rows)[name]
    assert same([x[index] for x in _tensors(call(torch.arange(rows)))], call(index))


@pytest.mark.parametrize("name", sorted(_matrix_calls(1)))
def test_the_number_of_threads_changes_no_bit_of_a_large_product(name: str) -> None:
    before, rows = _kernels.threads(), torch.arange(300)
    call, results = _matrix_calls(300)[name], []
    try:
        for threads in (1, 3):
            _kernels.set_threads(threads)
            results.append(call(rows))
    finally:
        _kernels.set_threads(before)
    assert same(*results)


@pytest.mark.parametrize("scale", [0, 4, 9, 10, 60, 127, 200, 246, 247, 254])
@pytest.mark.parametrize("size", [1e-38, 1e-30, 1e-10, 1.0, 1e10, 1e30, 3e38])
def test_numbers_at_the_ends_of_float32_have_their_bits_in_any_batch(scale: int, size: float) -> None:
    """One row takes the FP8 scales to its activations, several to the weights: equal where nothing over- or underflows,
    and the first is left undone where it could."""
    make = Maker(CPU, torch.float32, 7)
    data = make.normal(40, 96, scale=20.0).to(torch.float8_e4m3fn)
    scales = torch.full((2, 3), scale, dtype=torch.uint8)
    scales[:, 1] = 127
    weight, x = Weight(data, WeightFormat.FP8, scales), make.normal(5, 96) * size
    x[:, ::7] = 0
    whole = KERNELS["linear"](x, weight, False)
    alone = torch.cat([KERNELS["linear"](row[None], weight, False) for row in x])
    torch.testing.assert_close(alone, whole, atol=0.0, rtol=0.0, equal_nan=True)
