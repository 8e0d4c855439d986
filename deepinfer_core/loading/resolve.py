"""From the name of a model to its folder: a path, a plugin's model source, or a hub name in the local cache."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.api.errors import ConfigError, PluginError, nearest, shown

if TYPE_CHECKING:
    from deepinfer_core.plugin.registry import Registry

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def resolve_model(name: str, registry: Registry) -> Path:
    """The model's folder. A model source's name comes before a folder of that name, which is reached as `./name`.

    Nothing is downloaded, except by a model source that says so. Raises `ConfigError` when there is no such model and
    `PluginError` when its source fails.
    """
    if name in registry.model_sources:
        return _from_source(name, registry)
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            return path.resolve()
        is_file = path.exists()
    except (OSError, RuntimeError) as error:  # too long a name, a folder that may not be looked into, nobody's home
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"model {shown(name)} cannot be looked up: {reason}; give a folder") from error
    if is_file:
        raise ConfigError(f"model {name!r} is a file: give the folder that holds config.json and the tensors")
    if _HUB_NAME.fullmatch(name) and not name.startswith("."):
        return _from_hub_cache(name, registry)
    raise ConfigError(_unknown(name, registry))


def _from_source(name: str, registry: Registry) -> Path:
    folder = registry.model_sources[name]
    if not isinstance(folder, (str, os.PathLike)) or not Path(folder).is_dir():
        plugin = registry.model_sources.plugin_of(name)
        raise PluginError(f"model source {name!r} of plugin {plugin!r} gave {str(folder)!r}, which is not a folder")
    return Path(folder).resolve()


def _from_hub_cache(name: str, registry: Registry) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise ConfigError(
            f"{_unknown(name, registry)}; it could be a hub name, which needs the package huggingface_hub to be found "
            "in the local cache"
        ) from error
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except HFValidationError as error:
        raise ConfigError(f"{_unknown(name, registry)}; it is no hub name either: {error}") from error
    except LocalEntryNotFoundError as error:
        raise ConfigError(
            f"{_unknown(name, registry)}; as a hub name it is not in the local cache either: "
            f"download it with `hf download {name}` and try again"
        ) from error


def _unknown(name: str, registry: Registry) -> str:
    sources = registry.model_sources
    text = f"there is no model {name!r}: no folder of that name, and no model source{nearest(name, sources)}"
    return "; ".join([text, f"model sources: {', '.join(sources) or 'none'}", *registry.failures])
