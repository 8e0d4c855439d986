"""Registers the architectures of this distribution, by the same door as a third party's and without importing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepinfer_core.plugin.hookspecs import Register, hookimpl

if TYPE_CHECKING:
    from deepinfer_core.interfaces.model import ModelFactory

built_for = 1
minimum = 1


@hookimpl
def deepinfer_models(register: Register[ModelFactory]) -> None:
    register("DeepseekV41ForCausalLM", _deepseek_v41)


def _deepseek_v41() -> ModelFactory:
    from deepinfer_core.models.deepseek_v41.factory import DeepseekV41Factory

    return DeepseekV41Factory()
