"""Which backend runs: the one asked for or a refusal, never a substitute. Opening it is the engine's work."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.api.errors import ConfigError, DeepInferError, PluginError
from deepinfer_core.interfaces.backend import Backend, Probe
from deepinfer_core.plugin.version import refusal

if TYPE_CHECKING:
    from deepinfer_core.api.config import Environment
    from deepinfer_core.plugin.registry import Registry


@dataclass(frozen=True, slots=True)
class Candidate:
    """A registered backend and whether it can run here. `backend` is None where it could not even be made."""

    name: str
    probe: Probe
    backend: Backend | None = None
    accelerator: bool = False

    @property
    def available(self) -> bool:
        return self.backend is not None and self.probe.available


@dataclass(frozen=True, slots=True)
class Choice:
    """The backend to run on. `lines` say why it, and what was left aside; they are for people."""

    backend: Backend
    lines: tuple[str, ...]


def choose_backend(registry: Registry, requested: str | None, environment: Environment, record_path: Path) -> Choice:
    """Choose by: the request, DEEPINFER_BACKEND, the build record, the only available accelerator, the host's backend.

    Raises `PluginError` when what was asked for or recorded cannot run, and when two accelerators could.
    """
    if requested is not None:
        return _named(registry, requested, "asked for")
    if environment.backend:
        return _named(registry, environment.backend, "asked for by DEEPINFER_BACKEND")
    recorded = _recorded(record_path)
    if recorded:
        choice = _named(registry, recorded, f"recorded by the build in {record_path}")
        return Choice(choice.backend, (*choice.lines, *_idle_accelerators(registry, choice.backend)))
    return _automatic(registry)


def survey(registry: Registry) -> list[Candidate]:
    """Every registered backend, made and probed. A backend that fails at either is a candidate with the reason."""
    return [_candidate(registry, name) for name in registry.backends]


def _candidate(registry: Registry, name: str) -> Candidate:
    try:
        backend = registry.backends[name]
        reason = refusal(backend.interface, 1)
        if reason:
            return Candidate(name, Probe(False, reason))
        return Candidate(name, backend.probe(), backend, backend.capabilities().accelerator)
    except DeepInferError as error:
        return Candidate(name, Probe(False, str(error)))
    except Exception as error:
        return Candidate(name, Probe(False, f"its probe failed: {type(error).__name__}: {error}"))


def _named(registry: Registry, name: str, why: str) -> Choice:
    if name not in registry.backends:
        registry.backends.plugin_of(name)  # raises, with what is registered and which plugins failed
    candidate = _candidate(registry, name)
    if candidate.backend is None or not candidate.available:
        raise PluginError(
            f"backend {name!r} was {why} and cannot run here: {candidate.probe.reason}; "
            f"it is not replaced by another: choose one with --backend or DEEPINFER_BACKEND from "
            f"{', '.join(registry.backends)}"
        )
    return Choice(candidate.backend, (f"backend {name}: {why}; {candidate.probe.reason}",))


def _automatic(registry: Registry) -> Choice:
    candidates = survey(registry)
    available = [one for one in candidates if one.available]
    accelerators = [one for one in available if one.accelerator]
    pool = accelerators or available
    if len(pool) > 1:
        kind = "accelerators" if accelerators else "backends"
        listed = "; ".join(f"{one.name}: {one.probe.reason}" for one in pool)
        raise PluginError(
            f"{len(pool)} {kind} can run here and none was asked for: {listed}: "
            "choose one with --backend or DEEPINFER_BACKEND"
        )
    unavailable = tuple(
        f"backend {one.name} is not used: {one.probe.reason}" for one in candidates if not one.available
    )
    if not pool:
        raise PluginError(_nothing(unavailable, registry.failures))
    (chosen,) = pool
    assert chosen.backend is not None
    why = "the only accelerator that can run here" if accelerators else "no accelerator can run here"
    return Choice(chosen.backend, (f"backend {chosen.name}: {why}; {chosen.probe.reason}", *unavailable))


def _nothing(unavailable: tuple[str, ...], failures: list[str]) -> str:
    reasons = "; ".join((*unavailable, *failures)) or "no plugin registers one"
    return f"no backend can run here: {reasons}: install one, for example with build.sh, or repair what is named"


def _idle_accelerators(registry: Registry, chosen: Backend) -> list[str]:
    """A recorded host backend stays chosen, and whoever added an accelerator since is told how to use it."""
    if chosen.capabilities().accelerator:
        return []
    idle = [one for one in survey(registry) if one.available and one.accelerator]
    return [
        f"accelerator {one.name} could run here and is not used: choose it with --backend {one.name}" for one in idle
    ]


def _recorded(path: Path) -> str | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        name = record["backend"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the build record {path} cannot be read ({type(error).__name__}: {error}): run build.sh again or delete it"
        ) from error
    if not isinstance(name, str) or not name:
        raise ConfigError(f"the build record {path} names the backend {name!r}: run build.sh again or delete it")
    return name
