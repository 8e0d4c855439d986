"""The door: registers the drafter without importing it. `built_for` and `minimum` are interface versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepinfer_core.plugin.hookspecs import Register, hookimpl

if TYPE_CHECKING:
    from deepinfer_core.interfaces.drafter import Drafter

built_for = 1
minimum = 1


@hookimpl
def deepinfer_drafters(register: Register[Drafter]) -> None:
    register("myplugin", make_drafter)


def make_drafter() -> Drafter:
    """Called when an engine asks for the drafter."""
    from deepinfer_myplugin.drafter import MyPluginDrafter

    return MyPluginDrafter()
