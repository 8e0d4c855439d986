"""Bringing inputs to a device and results back, and comparing results to the last bit."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from deepinfer_conformance.inputs import tensors

T = TypeVar("T")
HOST = torch.device("cpu")


def moved(value: T, device: torch.device) -> T:
    """A copy with every tensor on `device`: inside dataclasses, tuples, lists and dicts too."""
    copy: T = _moved(value, device)
    return copy


def same_bits(one: object, other: object) -> bool:
    """Whether two results are equal to the last bit, NaNs and the sign of zero included. Waits for the device."""
    first, second = tensors(moved(one, HOST)), tensors(moved(other, HOST))
    return len(first) == len(second) and all(map(_equal, first, second))


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return not one.numel() or torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, copy=True)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(*(_moved(getattr(value, field.name), device) for field in fields(value)))
    if isinstance(value, tuple | list):
        return type(value)(_moved(one, device) for one in value)
    if isinstance(value, dict):
        return {key: _moved(one, device) for key, one in value.items()}
    return value
