"""Resolving a backend's kernels: references stand in, misfits are refused with both signatures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from deepinfer_core.api.errors import PluginError
from deepinfer_core.ops.catalogue import CATALOGUE
from deepinfer_core.ops.table import resolve


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x + 1


def test_without_kernels_every_op_is_its_reference() -> None:
    table = resolve({})
    assert table.fallbacks == tuple(CATALOGUE)
    for name, spec in CATALOGUE.items():
        assert getattr(table, name) is spec.reference


def test_a_kernel_takes_its_op_and_no_other_table() -> None:
    table = resolve({"rms_norm": rms_norm})
    x = torch.zeros(2, 3)
    assert torch.equal(table.rms_norm(x, torch.ones(3), 1e-6), x + 1)
    assert "rms_norm" not in table.fallbacks
    assert len(table.fallbacks) == len(CATALOGUE) - 1
    assert torch.equal(resolve({}).rms_norm(x, torch.ones(3), 1e-6), x)


def test_annotations_do_not_matter() -> None:
    def kernel(x: Any, weight: Any, eps: Any) -> Any: ...

    assert resolve({"rms_norm": kernel}).rms_norm is kernel


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(PluginError, match=r"'rms_nrom' is not an op.*did you mean 'rms_norm'"):
        resolve({"rms_nrom": rms_norm})


def test_another_parameter_list_is_refused_naming_both() -> None:
    def kernel(x: Tensor, weight: Tensor, epsilon: float) -> Tensor: ...

    with pytest.raises(PluginError) as error:
        resolve({"rms_norm": kernel})
    assert "(x, weight, epsilon)" in str(error.value)
    assert "(x, weight, eps)" in str(error.value)


def test_defaults_and_kinds_are_part_of_the_signature() -> None:
    def other_default(x: Tensor, position: Tensor, inv_freq: Tensor, inverse: bool = True) -> Tensor: ...
    def other_kind(x: Tensor, position: Tensor, inv_freq: Tensor, *, inverse: bool = False) -> Tensor: ...

    for kernel in (other_default, other_kind):
        with pytest.raises(PluginError, match="names, kinds and defaults"):
            resolve({"apply_rope": kernel})


def test_a_kernel_without_a_readable_signature_is_refused() -> None:
    with pytest.raises(PluginError, match=r"wrap it in a function rms_norm\(x, weight, eps\)"):
        resolve({"rms_norm": torch.rsqrt})
