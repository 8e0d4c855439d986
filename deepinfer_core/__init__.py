"""DeepInfer's backend-neutral core. The public names are loaded when first asked for, so that importing stays cheap."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepinfer_core.api.config import EngineConfig
    from deepinfer_core.api.errors import DeepInferError
    from deepinfer_core.api.llm import LLM
    from deepinfer_core.api.outputs import CompletionOutput, RequestOutput
    from deepinfer_core.api.params import SamplingParams

__all__ = ["LLM", "CompletionOutput", "DeepInferError", "EngineConfig", "RequestOutput", "SamplingParams"]

_HOMES = {
    "LLM": "deepinfer_core.api.llm",
    "CompletionOutput": "deepinfer_core.api.outputs",
    "DeepInferError": "deepinfer_core.api.errors",
    "EngineConfig": "deepinfer_core.api.config",
    "RequestOutput": "deepinfer_core.api.outputs",
    "SamplingParams": "deepinfer_core.api.params",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
