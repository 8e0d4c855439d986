"""The door: registers the backend without importing it. `built_for` and `minimum` are interface versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from deepinfer_core.plugin.hookspecs import Register, hookimpl

if TYPE_CHECKING:
    from deepinfer_core.interfaces.backend import Backend

built_for = 1
minimum = 1


@hookimpl
def deepinfer_backends(register: Register[Backend]) -> None:
    register("mychip", make_backend)


def make_backend() -> Backend:
    """Called when the backend is first asked for."""
    from deepinfer_mychip.backend import MyChipBackend

    return MyChipBackend()


@hookimpl
def deepinfer_report() -> Mapping[str, str]:
    return {"driver": "none needed: this is an example"}
