"""Registers the CPU backend. Importing this loads neither torch nor the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepinfer_core.plugin.hookspecs import Register, hookimpl
from deepinfer_cpu import BUILT_FOR

if TYPE_CHECKING:
    from deepinfer_core.interfaces.backend import Backend

built_for = BUILT_FOR
minimum = 1


@hookimpl
def deepinfer_backends(register: Register[Backend]) -> None:
    register("cpu", _make)


def _make() -> Backend:
    from deepinfer_core.api.config import read_environment
    from deepinfer_cpu.backend import CpuBackend

    return CpuBackend(read_environment().threads)
