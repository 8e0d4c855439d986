"""What plugins registered: for each kind, names to factories, and which plugin gave them. Loading is in `loader.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from deepinfer_core.api.errors import DeepInferError, PluginError, nearest

if TYPE_CHECKING:
    from deepinfer_core.interfaces.backend import Backend
    from deepinfer_core.interfaces.constraint import ConstraintEngine
    from deepinfer_core.interfaces.drafter import Drafter
    from deepinfer_core.interfaces.executor import Executor
    from deepinfer_core.interfaces.model import ModelFactory
    from deepinfer_core.interfaces.observer import Observer
    from deepinfer_core.interfaces.sampler import LogitsProcessor
    from deepinfer_core.interfaces.scheduler import Scheduler, SchedulerLimits
    from deepinfer_core.plugin.hookspecs import Command, Register

T = TypeVar("T")

NATIVE_SCHEDULER = "native"  # the name of scheduling/native.py among schedulers

AWAITED = ("drafter", "executor")  # kinds that this release registers and never asks for


class Table(Generic[T]):
    """The names of one kind. `table[name]` calls the factory the first time and gives the same object ever after.

    A name that two plugins claim belongs to neither: asking for it is an error that does not depend on their order.
    """

    def __init__(self, kind: str, failures: list[str], own: tuple[str, ...] = ()) -> None:
        """`failures` is shared with the loader, which adds one sentence for each plugin that failed to load. `own` are
        names that mean something of the core's, which no plugin may register."""
        self.kind = kind
        self._own = own
        self._failures = failures
        self._claims: dict[str, dict[str, Callable[[], T]]] = {}  # name -> plugin -> factory
        self._made: dict[str, T] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._claims

    def __iter__(self) -> Iterator[str]:
        """The names, sorted."""
        return iter(sorted(self._claims))

    def __getitem__(self, name: str) -> T:
        """Raises `PluginError` when the name is unknown, claimed twice, or its factory fails."""
        if name not in self._made:
            plugin = self.plugin_of(name)
            self._made[name] = self._make(name, plugin)
        return self._made[name]

    def plugin_of(self, name: str) -> str:
        """The plugin that registered the name. Raises `PluginError` when there is none, or more than one."""
        if name not in self._claims:
            raise PluginError(self._missing(name))
        if len(self._claims[name]) > 1:
            raise PluginError(self._conflict(name))
        return next(iter(self._claims[name]))

    def plugins_of(self, name: str) -> list[str]:
        """Every plugin that claims the name, sorted."""
        return sorted(self._claims[name])

    def conflicts(self) -> list[str]:
        """One sentence for each name that more than one plugin claims."""
        return [self._conflict(name) for name in self if len(self._claims[name]) > 1]

    def names_of(self, plugin: str) -> list[str]:
        """The names that a plugin registered, sorted."""
        return [name for name in self if plugin in self._claims[name]]

    def registrar(self, plugin: str) -> Register[T]:
        """The `register` callback that a hook of this plugin is given."""

        def register(name: str, factory: Callable[[], T]) -> None:
            self._add(plugin, name, factory)

        return register

    def withdraw(self, plugin: str) -> None:
        """Forget everything that the plugin registered."""
        for name in self.names_of(plugin):
            del self._claims[name][plugin]
            if not self._claims[name]:
                del self._claims[name]

    def _add(self, plugin: str, name: object, factory: object) -> None:
        if not isinstance(name, str) or not name or name != name.strip():
            raise PluginError(f"{self.kind} name {name!r} is not allowed: give a non-empty string without outer spaces")
        if name in self._own:
            raise PluginError(f"{self.kind} {name!r} is the core's own: choose another name")
        if not callable(factory):
            raise PluginError(f"{self.kind} {name!r} is registered with {factory!r}: give a function without arguments")
        claims = self._claims.setdefault(name, {})
        if plugin in claims:
            raise PluginError(f"{self.kind} {name!r} is registered twice by the same plugin: register it once")
        claims[plugin] = factory

    def _make(self, name: str, plugin: str) -> T:
        try:
            return self._claims[name][plugin]()
        except DeepInferError:
            raise
        except Exception as error:
            raise PluginError(
                f"{self.kind} {name!r} of plugin {plugin!r} could not be made: {type(error).__name__}: {error}"
            ) from error

    def _conflict(self, name: str) -> str:
        first, *others = self.plugins_of(name)
        return (
            f"{self.kind} {name!r} is claimed by the plugins {', '.join(map(repr, (first, *others)))}: "
            f"uninstall one of them, or leave one out with DEEPINFER_PLUGINS_DISABLE={others[-1]}"
        )

    def _missing(self, name: str) -> str:
        known = (*self._own, *self)
        listed = ", ".join(known) or "none"
        text = f"no plugin registers the {self.kind} {name!r}{nearest(name, known)}; registered: {listed}"
        return "; ".join([text, *self._failures])


class Registry:
    """Everything that loaded plugins registered, one table a kind."""

    def __init__(self) -> None:
        self.failures: list[str] = []  # "plugin 'x' failed to load: ...", told to whoever asks for a missing name
        self.backends: Table[Backend] = Table("backend", self.failures)
        self.models: Table[ModelFactory] = Table("model architecture", self.failures)
        self.drafters: Table[Drafter] = Table("drafter", self.failures)
        self.constraints: Table[ConstraintEngine] = Table("constraint kind", self.failures)
        self.processors: Table[LogitsProcessor] = Table("logits processor", self.failures)
        self.schedulers: Table[Callable[[SchedulerLimits], Scheduler]] = Table(
            "scheduler", self.failures, own=(NATIVE_SCHEDULER,)
        )
        self.executors: Table[Executor] = Table("executor", self.failures)
        self.observers: Table[Observer] = Table("observer", self.failures)
        self.model_sources: Table[Path] = Table("model source", self.failures)
        self.commands: Table[Command] = Table("command", self.failures)
        self.by_hook: Mapping[str, Table[Any]] = {
            "deepinfer_backends": self.backends,
            "deepinfer_models": self.models,
            "deepinfer_drafters": self.drafters,
            "deepinfer_constraints": self.constraints,
            "deepinfer_processors": self.processors,
            "deepinfer_schedulers": self.schedulers,
            "deepinfer_executors": self.executors,
            "deepinfer_observers": self.observers,
            "deepinfer_model_sources": self.model_sources,
            "deepinfer_cli": self.commands,
        }

    def conflicts(self) -> list[str]:
        """One sentence for each name that more than one plugin claims."""
        return [line for table in self.by_hook.values() for line in table.conflicts()]

    def unused(self) -> list[str]:
        """One sentence for each registered thing that this release has no use for yet."""
        return [
            f"plugin {plugin!r} registers the {table.kind} {name!r}: this release does not use {table.kind}s yet"
            for table in self.by_hook.values()
            if table.kind in AWAITED
            for name in table
            for plugin in table.plugins_of(name)
        ]

    def provided_by(self, plugin: str) -> tuple[str, ...]:
        """`backend cpu`, `model source demo`, ... for everything that the plugin registered."""
        return tuple(f"{table.kind} {name}" for table in self.by_hook.values() for name in table.names_of(plugin))

    def withdraw(self, plugin: str) -> None:
        """Forget everything that the plugin registered."""
        for table in self.by_hook.values():
            table.withdraw(plugin)
