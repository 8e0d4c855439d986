"""The hooks that a plugin may implement. Each is called once, at set-up, and registers factories by name.

A factory takes no argument and is called when its name is first asked for, so that registering imports no device
library and no model code. `hookimpl` marks an implementation; everything else about plugins is in docs/plugin-api.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

import pluggy

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from pathlib import Path

    from deepinfer_core.interfaces.backend import Backend
    from deepinfer_core.interfaces.constraint import ConstraintEngine
    from deepinfer_core.interfaces.drafter import Drafter
    from deepinfer_core.interfaces.executor import Executor
    from deepinfer_core.interfaces.model import ModelFactory
    from deepinfer_core.interfaces.observer import Observer
    from deepinfer_core.interfaces.sampler import LogitsProcessor
    from deepinfer_core.interfaces.scheduler import Scheduler, SchedulerLimits

PROJECT = "deepinfer"  # the entry-point group, and pluggy's project name

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

T_contra = TypeVar("T_contra", contravariant=True)


class Register(Protocol[T_contra]):
    """Registers a factory under a name. Raises `PluginError` when the name or the factory cannot be used."""

    def __call__(self, name: str, factory: Callable[[], T_contra]) -> None: ...


class Command(Protocol):
    """A command of the `deepinfer` program. A module with these three names will do."""

    HELP: str

    def configure(self, parser: ArgumentParser) -> None:
        """Add the command's options."""

    def run(self, args: Namespace) -> int:
        """Do it and return the exit code."""


@hookspec
def deepinfer_backends(register: Register[Backend]) -> None:
    """Register kinds of hardware by the name that `--backend` takes."""


@hookspec
def deepinfer_models(register: Register[ModelFactory]) -> None:
    """Register models by the name that a checkpoint's config.json lists under `architectures`."""


@hookspec
def deepinfer_drafters(register: Register[Drafter]) -> None:
    """Register sources of speculative tokens."""


@hookspec
def deepinfer_constraints(register: Register[ConstraintEngine]) -> None:
    """Register engines by the kind of constraint that they enforce (`json_schema`, `regex`, ...)."""


@hookspec
def deepinfer_processors(register: Register[LogitsProcessor]) -> None:
    """Register logits processors by the name that a request asks for."""


@hookspec
def deepinfer_schedulers(register: Register[Callable[[SchedulerLimits], Scheduler]]) -> None:
    """Register scheduler policies. The factory gives a class, or a function, that takes the limits."""


@hookspec
def deepinfer_executors(register: Register[Executor]) -> None:
    """Register ways to run engine replicas elsewhere."""


@hookspec
def deepinfer_observers(register: Register[Observer]) -> None:
    """Register watchers of the engine's phases, steps and finished requests."""


@hookspec
def deepinfer_model_sources(register: Register[Path]) -> None:
    """Register model names. The factory gives the local folder, and makes or fetches it first where it must."""


@hookspec
def deepinfer_cli(register: Register[Command]) -> None:
    """Register commands of the `deepinfer` program."""


@hookspec
def deepinfer_report() -> Mapping[str, str]:  # type: ignore[empty-body]
    """Facts of the plugin for `deepinfer doctor`: library versions, what it found, what it runs without."""
