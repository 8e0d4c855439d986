"""The inputs of ops: an op's cases as named arguments, moved to a device, spread out in memory, and run there.

Every input is made on the host, so that the backend and the reference get the same bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from deepinfer_conformance.options import DTYPES
from deepinfer_conformance.subject import Subject
from deepinfer_core.interfaces.backend import Capabilities
from deepinfer_core.interfaces.ops import OpSpec, PagedView, RowFormat, Rows, Weight, WeightFormat, WindowView
from deepinfer_core.ops.catalogue import CATALOGUE

T = TypeVar("T")
Arguments = Mapping[str, Any]  # by the names of the reference's parameters

CPU = torch.device("cpu")
POOLS = ("pool", "pending")  # parameters that are pools; these, and stored weights, always lie in one piece
_GROUPS = (Weight, Rows, WindowView, PagedView)


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs on the host."""

    name: str
    arguments: Arguments


def op_params(*names: str) -> list[Any]:
    """Parameters (name, op_dtype) for every op named, or of the catalogue, in every dtype that it is defined for."""
    return [
        pytest.param(name, dtype, id=f"{name}-{dtype}", marks=pytest.mark.capability(f"dtype.{dtype}"))
        for name in names or sorted(CATALOGUE)
        for dtype in DTYPES
        if dtype in CATALOGUE[name].tolerances
    ]


def host_cases(spec: OpSpec, dtype: str, seed: int) -> Iterator[Case]:
    """The catalogue's cases of an op."""
    signature = inspect.signature(spec.reference)
    for case in spec.cases(CPU, getattr(torch, dtype), seed):
        yield Case(case.name, dict(signature.bind(*case.args, **case.kwargs).arguments))


def is_claimed(arguments: Arguments, capabilities: Capabilities) -> bool:
    """Whether the backend claims every weight and row format among the arguments."""
    weights, rows = set(), set()
    for value in arguments.values():
        format = getattr(value, "format", value)
        if isinstance(format, WeightFormat):
            weights.add(format)
        elif isinstance(format, RowFormat):
            rows.add(format)
    return weights <= set(capabilities.weight_formats) and rows <= set(capabilities.kv_formats)


def map_tensors(arguments: Arguments, fn: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """The arguments with `fn` of every tensor, those inside weights, rows and views too."""
    return {name: _map(value, fn) for name, value in arguments.items()}


def _map(value: T, fn: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return fn(value)
    if isinstance(value, _GROUPS):
        return replace(value, **{field.name: _map(getattr(value, field.name), fn) for field in fields(value)})
    return value


def spread(arguments: Arguments, layout: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """The arguments with every tensor but pools, weights and views in another layout of memory."""
    return {
        name: layout(value) if isinstance(value, Tensor) and name not in POOLS else value
        for name, value in arguments.items()
    }


def wider_rows(x: Tensor) -> Tensor:
    """The same numbers as the middle columns of a wider tensor, as a slice of a fused projection has them."""
    return _inside(x, (*x.shape[:-1], x.shape[-1] + 5), lambda wide: wide[..., 3:-2]) if x.dim() else x


def every_second(x: Tensor) -> Tensor:
    """The same numbers with a gap after each."""
    return _inside(x, (*x.shape, 2), lambda wide: wide[..., 0]) if x.dim() else x


def transposed(x: Tensor) -> Tensor:
    """The same numbers with the first two dimensions swapped in memory."""
    return x.transpose(0, 1).contiguous().transpose(0, 1) if x.dim() > 1 else x


LAYOUTS = (wider_rows, every_second, transposed)


def _inside(x: Tensor, shape: tuple[int, ...], cut: Callable[[Tensor], Tensor]) -> Tensor:
    wide = torch.full((*shape, x.element_size()), 0xFF, dtype=torch.uint8, device=x.device).view(x.dtype)[..., 0]
    part = cut(wide)
    part.copy_(x)
    return part


def tensors(result: object) -> list[Tensor]:
    """The tensors that an op gave."""
    if isinstance(result, Tensor):
        return [result]
    return [x for x in result if isinstance(x, Tensor)] if isinstance(result, (tuple, list)) else []


def expected(spec: OpSpec, arguments: Arguments) -> list[Tensor]:
    """What the reference gives on the host, followed by what it wrote in place."""
    own = map_tensors(arguments, Tensor.clone)
    return [*tensors(spec.reference(**own)), *(own[name] for name in spec.mutates)]


def given(subject: Subject, spec: OpSpec, arguments: Arguments) -> list[Tensor]:
    """What the backend gives for arguments on its device, on its queue; then what it wrote in place. On the host."""
    kernel = getattr(subject.ops, spec.name)

    def work() -> list[Tensor]:
        return [x.cpu() for x in (*tensors(kernel(**arguments)), *(arguments[name] for name in spec.mutates))]

    return subject.run(work)


def computed(subject: Subject, spec: OpSpec, arguments: Arguments) -> list[Tensor]:
    """`given` for arguments on the host, which are copied and stay as they are."""
    return given(subject, spec, map_tensors(arguments, lambda x: x.clone().to(subject.torch_device)))


def real_rows(arguments: Arguments, outputs: list[Tensor]) -> list[Tensor]:
    """The outputs without padding rows, which may hold anything."""
    rows = arguments.get("rows")
    if not isinstance(rows, Rows):
        return outputs
    kept = rows.slot >= 0
    return [x[kept] if len(x) == len(kept) else x for x in outputs]
