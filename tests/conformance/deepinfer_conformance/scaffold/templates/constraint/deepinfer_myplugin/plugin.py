"""The door: registers the constraint without importing it. `built_for` and `minimum` are interface versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepinfer_core.plugin.hookspecs import Register, hookimpl

if TYPE_CHECKING:
    from deepinfer_core.interfaces.constraint import ConstraintEngine

built_for = 1
minimum = 1


@hookimpl
def deepinfer_constraints(register: Register[ConstraintEngine]) -> None:
    register("myplugin", make_engine)


def make_engine() -> ConstraintEngine:
    """Called when a request first asks for the constraint."""
    from deepinfer_myplugin.choice import MyPluginChoice

    return MyPluginChoice()
