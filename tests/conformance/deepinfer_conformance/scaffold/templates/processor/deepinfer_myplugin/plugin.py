"""The door: registers the processor without importing it. `built_for` and `minimum` are interface versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepinfer_core.plugin.hookspecs import Register, hookimpl

if TYPE_CHECKING:
    from deepinfer_core.interfaces.sampler import LogitsProcessor

built_for = 1
minimum = 1


@hookimpl
def deepinfer_processors(register: Register[LogitsProcessor]) -> None:
    register("myplugin", make_processor)


def make_processor() -> LogitsProcessor:
    """Called when a request first names the processor."""
    from deepinfer_myplugin.stage import MyPluginStage

    return MyPluginStage()
