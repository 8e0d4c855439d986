"""Laws that hold for every op of the catalogue, and the catalogue's agreement with its documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpCase, OpSpec, Rows
from deepinfer_core.ops.catalogue import CATALOGUE

CPU = torch.device("cpu")
OPS = list(CATALOGUE.values())
every_op = pytest.mark.parametrize("spec", OPS, ids=[spec.name for spec in OPS])


def cases(spec: OpSpec, dtype: str, seed: int = 0) -> Iterator[OpCase]:
    return spec.cases(CPU, getattr(torch, dtype), seed)


def tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor within arguments or results."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))


def snapshot(value: Any) -> list[bytes]:
    return [t.detach().contiguous().view(torch.uint8).numpy().tobytes() for t in tensors(value) if t.numel()]


@every_op
def test_reference_answers_its_own_cases_with_numbers(spec: OpSpec) -> None:
    for dtype in spec.tolerances:
        for case in cases(spec, dtype):
            result = spec.reference(*case.args, **case.kwargs)
            for tensor in tensors(result):
                assert not tensor.is_floating_point() or not tensor.isnan().any(), case.name


@every_op
def test_reference_gives_the_same_bits_twice(spec: OpSpec) -> None:
    for first, second in zip(cases(spec, "float32"), cases(spec, "float32"), strict=True):
        results = [spec.reference(*case.args, **case.kwargs) for case in (first, second)]
        assert snapshot(results[0]) == snapshot(results[1]), first.name


@every_op
def test_only_declared_arguments_are_written(spec: OpSpec) -> None:
    assert set(spec.mutates) <= set(spec.reference.__code__.co_varnames[: spec.reference.__code__.co_argcount])
    for case in cases(spec, "float32"):
        named = dict(zip(spec.reference.__code__.co_varnames, case.args, strict=False)) | dict(case.kwargs)
        watched = [value for name, value in named.items() if name not in spec.mutates]
        before = snapshot(watched)
        spec.reference(*case.args, **case.kwargs)
        assert snapshot(watched) == before, case.name


@every_op
def test_cases_are_named_apart_and_include_zero_rows(spec: OpSpec) -> None:
    for dtype in spec.tolerances:
        made = list(cases(spec, dtype))
        assert len({case.name for case in made}) == len(made)
        assert any(tensor.shape[0] == 0 for case in made for tensor in tensors(case.args))


@every_op
def test_seeds_give_different_inputs(spec: OpSpec) -> None:
    drawn = [[snapshot(case.args) for case in cases(spec, "float32", seed)] for seed in (0, 1)]
    assert drawn[0] != drawn[1]


@every_op
def test_padding_rows_may_hold_anything(spec: OpSpec) -> None:
    """Other fields of a padding row change no other row's result, and reach no index error."""
    for case in cases(spec, "float32"):
        place = next((i for i, arg in enumerate(case.args) if isinstance(arg, Rows)), None)
        if place is None or not (case.args[place].slot < 0).any():
            continue
        rows: Rows = case.args[place]
        real = rows.slot >= 0
        odd = {
            name: torch.where(real, getattr(rows, name), value).to(torch.int32)
            for name, value in (("position", 90000), ("first_position", -5), ("first_row", -1), ("floor", 80000))
        }
        args = (*case.args[:place], replace(rows, **odd), *case.args[place + 1 :])
        expected, actual = spec.reference(*case.args, **case.kwargs), spec.reference(*args, **case.kwargs)
        assert torch.equal(actual[real], expected[real]), case.name


def test_names_are_those_of_the_references() -> None:
    for name, spec in CATALOGUE.items():
        assert name == spec.name == spec.reference.__name__
        assert spec.reference.__doc__


def test_the_architecture_page_lists_exactly_these_ops() -> None:
    page = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("\n## Ops\n", 1)[1].split("\n## ", 1)[0]
    table = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    listed = re.findall(r"`([a-z_]+)\(", table)
    assert sorted(listed) == sorted(CATALOGUE)


def test_the_architecture_page_has_each_op_in_its_family() -> None:
    page = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text(encoding="utf-8")
    family = ""
    for line in page.split("\n## Ops\n", 1)[1].split("\n## ", 1)[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|", 1)]
        family = cells[0] or family
        for name in re.findall(r"`([a-z_]+)\(", cells[-1]) if line.startswith("|") else ():
            assert CATALOGUE[name].family == family
