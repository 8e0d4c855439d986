"""EngineConfig: every option of the engine, and the only place where environment variables are read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from deepinfer_core.api.errors import ConfigError, nearest, shown

ENVIRONMENT: Mapping[str, str] = {
    "DEEPINFER_ACCEL": "build.sh: cpu, cuda or ascend",
    "DEEPINFER_NO_VENV": "build.sh: 1 builds with the active interpreter and downloads nothing",
    "DEEPINFER_BACKEND": "backend to run on when none is named",
    "DEEPINFER_PLUGINS_STRICT": "1 or true: any plugin that fails to load stops the program",
    "DEEPINFER_PLUGINS_DISABLE": "comma-separated plugin names that are not loaded",
    "DEEPINFER_LOG": "log level: debug, info, warning, error",
    "DEEPINFER_THREADS": "threads of the CPU backend",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How to run a model. Raises `ConfigError` naming the option, its value and what is allowed."""

    model: str = "demo"  # a folder, or the name of a model source
    backend: str | None = None  # None: DEEPINFER_BACKEND, the build record, the only accelerator, or cpu
    device_index: int = 0
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: the first that the backend lists
    activation_quant: Literal["checkpoint", "off"] = "checkpoint"
    prefill: Literal["bounded", "exact"] = "bounded"
    decoder_rows: int | None = None  # prompt rows that bounded prefill keeps; None: the model's own
    max_running: int = 64  # requests decoded together
    max_step_tokens: int = 512  # rows a step
    max_length: int | None = None  # positions a sequence may have; None: the model's context, at most 32768
    cache_tokens: int | None = None  # tokens the paged cache holds; None: from cache_memory
    cache_memory: float = 0.25  # share of free device memory for the paged cache
    block_size: int = 64
    prefix_cache: bool = True  # keep the blocks of finished prefixes for requests that begin alike
    replay: Literal["exact", "bounded"] = "exact"  # how a prefix hit rebuilds sliding windows; bounded is approximate
    scheduler: str = "native"  # the core's own, or the name of a plugin's
    overlap: bool = True  # plan and commit on the host while the device runs
    logprobs_mode: Literal["raw", "processed"] = "raw"
    strict: bool = False  # anything that would run on a reference or substitute is an error
    seed: int | None = None  # base for requests without a seed; None: the system's randomness

    def __post_init__(self) -> None:
        for name, (kinds, wanted) in _KINDS.items():
            if type(getattr(self, name)) not in kinds:
                raise ConfigError(f"{name} = {shown(getattr(self, name))} is not allowed: give {wanted}")
        for name in ("model", "backend", "scheduler"):
            if getattr(self, name) == "":
                raise ConfigError(f"{name} is empty: give {_KINDS[name][1]}, or leave it out")
        for name in ("max_running", "max_step_tokens", "block_size"):
            self._at_least(name, 1)
        self._at_least("device_index", 0)
        for name in ("max_length", "cache_tokens", "decoder_rows"):
            if getattr(self, name) is not None:
                self._at_least(name, 1)
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} = {shown(getattr(self, name))} is not allowed: choose one of {', '.join(allowed)}"
                )
        if self.seed is not None and not 0 <= self.seed < 1 << 64:
            raise ConfigError(
                f"seed = {shown(self.seed)} is not allowed: give a whole number from 0 to {(1 << 64) - 1}"
            )
        if not 0.0 < self.cache_memory <= 1.0:
            raise ConfigError(f"cache_memory = {shown(self.cache_memory)} is not allowed: give a share in (0, 1]")

    def _at_least(self, name: str, low: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 1 << 63:
            raise ConfigError(f"{name} = {shown(value)} is not allowed: give a whole number of at least {low}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EngineConfig:
        """Build from named values; an unknown name is an error that says the nearest one."""
        known = {f.name for f in fields(cls)}
        for name in values:
            if name not in known:
                hint, options = nearest(str(name), known), ", ".join(sorted(known))
                raise ConfigError(f"unknown engine option {shown(name)}{hint}; options: {options}")
        return cls(**values)


_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "model": ((str,), "a folder or the name of a model source"),
    "backend": ((str, type(None)), "the name of a backend"),
    "scheduler": ((str,), "native or the name of a plugin's scheduler"),
    "cache_memory": ((int, float), "a share in (0, 1]"),
    "overlap": ((bool,), "true or false"),
    "prefix_cache": ((bool,), "true or false"),
    "strict": ((bool,), "true or false"),
    "seed": ((int, type(None)), "a whole number"),
}

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "dtype": ("auto", "float32", "bfloat16"),
    "activation_quant": ("checkpoint", "off"),
    "prefill": ("bounded", "exact"),
    "replay": ("exact", "bounded"),
    "logprobs_mode": ("raw", "processed"),
}

_ON = ("1", "true", "yes", "on")
_OFF = ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Environment:
    """The DEEPINFER_* variables that matter at run time, read once."""

    backend: str | None
    plugins_strict: bool
    plugins_disabled: frozenset[str]
    log_level: str
    threads: int | None
    unknown: tuple[str, ...]  # DEEPINFER_* variables that the core does not read

    def unread(self, plugins: Iterable[str]) -> tuple[str, ...]:
        """One sentence for each variable that nobody reads. DEEPINFER_NAME_... is the business of the plugin `name`."""
        theirs = tuple(f"DEEPINFER_{name.upper().replace('-', '_')}_" for name in plugins)
        return tuple(
            f"environment variable {name} is not one of ours{nearest(name, ENVIRONMENT)}"
            for name in self.unknown
            if not name.startswith(theirs)
        )


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Read the variables (default: the process's). Raises `ConfigError` for a value that cannot be used."""
    env = os.environ if variables is None else variables
    unknown = tuple(name for name in sorted(env) if name.startswith("DEEPINFER_") and name not in ENVIRONMENT)
    threads = env.get("DEEPINFER_THREADS")
    if threads is not None and not re.fullmatch("[1-9][0-9]{0,3}", threads):
        raise ConfigError(f"DEEPINFER_THREADS = {shown(threads)} is not allowed: give a whole number from 1 to 9999")
    disabled = frozenset(filter(None, map(str.strip, env.get("DEEPINFER_PLUGINS_DISABLE", "").split(","))))
    return Environment(
        backend=env.get("DEEPINFER_BACKEND") or None,
        plugins_strict=_switch(env, "DEEPINFER_PLUGINS_STRICT"),
        plugins_disabled=disabled,
        log_level=env.get("DEEPINFER_LOG", "warning"),
        threads=int(threads) if threads else None,
        unknown=unknown,
    )


def _switch(env: Mapping[str, str], name: str) -> bool:
    """A variable that is on or off; off when it is not set, or empty."""
    text = env.get(name, "").strip().lower()
    if text in _ON or text in _OFF:
        return text in _ON
    allowed = ", ".join((*_ON, *filter(None, _OFF)))
    raise ConfigError(f"{name} = {shown(env[name])} is not allowed: choose one of {allowed}")


def build_record() -> Path:
    """Where build.sh notes the backend that it built: `build.json` beside the interpreter's environment."""
    import sys

    return Path(sys.prefix) / "share" / "deepinfer" / "build.json"
