"""Every engine option against the backend's promises and the checkpoint, before a device is opened or a weight read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from deepinfer_core.api.errors import CheckpointError, ConfigError
from deepinfer_core.interfaces.model import ModelOptions
from deepinfer_core.loading.index import read_json
from deepinfer_core.loading.resolve import resolve_model
from deepinfer_core.plugin.registry import NATIVE_SCHEDULER

if TYPE_CHECKING:
    from deepinfer_core.api.config import EngineConfig
    from deepinfer_core.interfaces.backend import Capabilities
    from deepinfer_core.interfaces.cache import CacheSpec
    from deepinfer_core.interfaces.model import ModelFactory, ModelInfo
    from deepinfer_core.plugin.registry import Registry

DEFAULT_MAX_LENGTH = 32768  # positions, where the model's context is longer and none is asked for

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """A checkpoint and options that were found to fit together. Nothing is loaded yet."""

    folder: Path
    checkpoint_config: Mapping[str, Any]  # config.json
    factory: ModelFactory
    info: ModelInfo
    options: ModelOptions
    max_length: int  # positions a sequence may have
    decoder_rows: int  # prompt rows that bounded prefill keeps; 0: exact


def check_build(config: EngineConfig, registry: Registry, backend: str, capabilities: Capabilities) -> BuildPlan:
    """Raises `ConfigError`, `PluginError` or `CheckpointError` for whatever cannot run, each saying what is allowed."""
    options = ModelOptions(_dtype(config, backend, capabilities), config.activation_quant == "checkpoint")
    _check_sizes(config, backend, capabilities)
    if config.scheduler != NATIVE_SCHEDULER:
        registry.schedulers.plugin_of(config.scheduler)  # raises, with what is registered and which plugins failed
    folder = resolve_model(config.model, registry)
    checkpoint_config = read_json(folder / "config.json")
    factory = _factory(folder, checkpoint_config, registry)
    info = factory.inspect(folder, checkpoint_config)
    _check_weights(info, backend, capabilities)
    _check_caches(factory.cache_spec(checkpoint_config, options), config, backend, capabilities)
    return BuildPlan(
        folder=folder,
        checkpoint_config=checkpoint_config,
        factory=factory,
        info=info,
        options=options,
        max_length=_max_length(config, info),
        decoder_rows=_decoder_rows(config, info),
    )


def _dtype(config: EngineConfig, backend: str, capabilities: Capabilities) -> torch.dtype:
    name = capabilities.dtypes[0] if config.dtype == "auto" else config.dtype
    if name not in capabilities.dtypes:
        raise ConfigError(
            f"dtype = {name!r} is not allowed: backend {backend} computes in {', '.join(capabilities.dtypes)}; "
            "choose one of these or auto"
        )
    return _DTYPES[name]


def _check_sizes(config: EngineConfig, backend: str, capabilities: Capabilities) -> None:
    if config.block_size not in capabilities.block_sizes:
        sizes = ", ".join(map(str, capabilities.block_sizes))
        raise ConfigError(f"block_size = {config.block_size} is not allowed: backend {backend} takes {sizes}")
    limits = {"max_running": capabilities.max_slots, "max_step_tokens": capabilities.max_step_tokens}
    for option, most in limits.items():
        value = getattr(config, option)
        if value > most:
            raise ConfigError(f"{option} = {value} is not allowed: backend {backend} takes at most {most}; lower it")


def _factory(folder: Path, checkpoint_config: object, registry: Registry) -> ModelFactory:
    names = checkpoint_config.get("architectures") if isinstance(checkpoint_config, dict) else None
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise CheckpointError(f"{folder / 'config.json'} must name one model under architectures, and has {names!r}")
    if names[0] not in registry.models:
        raise CheckpointError(
            f"{folder / 'config.json'} is of architecture {names[0]!r}, which no plugin registers: "
            f"known are {', '.join(registry.models) or 'none'}; install a plugin for it"
        )
    return registry.models[names[0]]


def _check_weights(info: ModelInfo, backend: str, capabilities: Capabilities) -> None:
    missing = [one.value for one in info.weight_formats if one not in capabilities.weight_formats]
    if missing:
        raise ConfigError(
            f"backend {backend} cannot run this checkpoint: it has no weights in {', '.join(missing)}; "
            "choose another backend"
        )


def _check_caches(spec: CacheSpec, config: EngineConfig, backend: str, capabilities: Capabilities) -> None:
    formats = {pool.format for pool in spec.paged} | {ring.format for ring in spec.rings}
    missing = sorted(one.value for one in formats if one not in capabilities.kv_formats)
    if missing:
        raise ConfigError(
            f"activation_quant = {config.activation_quant!r} is not allowed: backend {backend} keeps no caches in "
            f"{', '.join(missing)}; choose the other setting or another backend"
        )


def _max_length(config: EngineConfig, info: ModelInfo) -> int:
    if config.max_length is None:
        return min(info.max_length, DEFAULT_MAX_LENGTH)
    if config.max_length > info.max_length:
        raise ConfigError(
            f"max_length = {config.max_length} is not allowed: the model was trained for {info.max_length} positions"
        )
    if config.max_length < 2:
        raise ConfigError("max_length = 1 is not allowed: a prompt and an answer need a token each; give at least 2")
    return config.max_length


def _decoder_rows(config: EngineConfig, info: ModelInfo) -> int:
    if config.decoder_rows is not None:
        if config.prefill == "exact":
            raise ConfigError("decoder_rows is for prefill = 'bounded': leave it out, or set prefill to bounded")
        if info.decoder_rows == 0:
            raise ConfigError("decoder_rows is not allowed: this model has no decoder half to bound; leave it out")
    if config.prefill == "exact" or info.decoder_rows == 0:
        return 0
    return config.decoder_rows or info.decoder_rows
