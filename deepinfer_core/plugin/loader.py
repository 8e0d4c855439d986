"""Loading the installed plugins, each on its own: one that is broken takes nothing else down.

Every outcome is remembered. What becomes of a failure is decided here too: one warning line, or an error when the user
wants strictness or two plugins claim one name. Whoever asks for what a broken plugin would have given gets the reason.
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Literal

import pluggy

from deepinfer_core.api.errors import DeepInferError, PluginError, nearest
from deepinfer_core.plugin import hookspecs
from deepinfer_core.plugin.registry import Registry
from deepinfer_core.plugin.version import INTERFACE, refusal

if TYPE_CHECKING:
    from deepinfer_core.api.config import Environment

logger = logging.getLogger(__name__)

HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("deepinfer_"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one installed plugin."""

    plugin: str  # the entry point's name
    distribution: str  # the installed distribution that it came with; empty when unknown
    version: str
    status: Literal["loaded", "failed", "disabled"]
    reason: str = ""  # one sentence, when it is not loaded
    built_for: int | None = None  # interface version; None when it is not loaded
    provides: tuple[str, ...] = ()  # "backend cpu", ...
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Plugins:
    """The loaded plugins, and the outcome of every installed one."""

    registry: Registry
    outcomes: tuple[Outcome, ...]
    problems: tuple[str, ...]  # one sentence each: failures, conflicts, what is not used yet, unknown disabled names
    managers: Mapping[str, pluggy.PluginManager] = field(repr=False)  # each loaded plugin's own, by its name

    def reports(self) -> dict[str, dict[str, str]]:
        """Plugin -> what its `deepinfer_report` says. An exception there becomes the entry `error`."""
        reports = {name: _report(manager) for name, manager in self.managers.items()}
        return {name: report for name, report in reports.items() if report}


@dataclass(frozen=True, slots=True)
class _Installed:
    point: EntryPoint
    plugin: str
    distribution: str
    version: str

    @classmethod
    def of(cls, point: EntryPoint) -> _Installed:
        name, version = (point.dist.name, point.dist.version) if point.dist else ("", "")
        return cls(point, point.name, name, version)

    def outcome(self, status: Literal["failed", "disabled"], reason: str, trace: str = "") -> Outcome:
        return Outcome(self.plugin, self.distribution, self.version, status, reason, traceback=trace)


def load_plugins(environment: Environment, *, found: Iterable[EntryPoint] | None = None, stop: bool = True) -> Plugins:
    """Load every plugin that is installed and not disabled. `found` replaces the installed entry points.

    With `stop`, a name that two plugins claim raises `PluginError`, and so does any failure when the environment asks
    for strictness; other problems become one warning line each. Without it nothing is raised or logged.
    """
    points = entry_points(group=hookspecs.PROJECT) if found is None else found
    installed = sorted(map(_Installed.of, points), key=lambda one: (one.plugin, one.distribution))
    disabled = [one for one in installed if environment.plugins_disabled & {one.plugin, one.distribution}]
    shared = _shared_names([one for one in installed if one not in disabled])
    registry = Registry()
    managers: dict[str, pluggy.PluginManager] = {}
    outcomes: list[Outcome] = []
    for one in installed:
        if one in disabled:
            outcomes.append(one.outcome("disabled", "left out by DEEPINFER_PLUGINS_DISABLE"))
        elif one.plugin in shared:
            outcomes.append(one.outcome("failed", shared[one.plugin]))
        else:
            outcomes.append(_load(one, registry, managers))
    registry.failures.extend(_failure(outcome) for outcome in outcomes if outcome.status == "failed")
    unknown = _unknown_disabled(environment.plugins_disabled, installed)
    problems = (*registry.failures, *registry.conflicts(), *registry.unused(), *unknown)
    if stop:
        _settle(problems, registry.failures, [*shared.values(), *registry.conflicts()], environment.plugins_strict)
    return Plugins(registry, tuple(outcomes), problems, managers)


def _load(one: _Installed, registry: Registry, managers: dict[str, pluggy.PluginManager]) -> Outcome:
    """A plugin has a manager of its own, so that whatever a hook raises is that plugin's and nobody else's."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        plugin = one.point.load()
        built_for = _check_version(plugin)
        _check_hooks(plugin, manager)
        manager.register(plugin, one.plugin)
        manager.check_pending()
        for hook, table in registry.by_hook.items():
            getattr(manager.hook, hook)(register=table.registrar(one.plugin))
    except (Exception, SystemExit) as error:
        registry.withdraw(one.plugin)
        return one.outcome("failed", _reason(error), "".join(traceback.format_exception(error)))
    managers[one.plugin] = manager
    return Outcome(
        one.plugin,
        one.distribution,
        one.version,
        "loaded",
        built_for=built_for,
        provides=registry.provided_by(one.plugin),
    )


def _check_version(plugin: object) -> int:
    """The interface version that the plugin was built for."""
    built_for = getattr(plugin, "built_for", None)
    if built_for is None:
        raise PluginError(f"it declares no interface version: set built_for = {INTERFACE} in the plugin's module")
    reason = refusal(built_for, getattr(plugin, "minimum", built_for))
    if reason:
        raise PluginError(reason)
    assert isinstance(built_for, int)
    return built_for


def _check_hooks(plugin: object, manager: pluggy.PluginManager) -> None:
    """The prefix `deepinfer_` is kept for hooks: a misspelt or unmarked one would otherwise never be called."""
    for name, _ in inspect.getmembers(plugin, inspect.isroutine):
        if not name.startswith("deepinfer_"):
            continue
        if name not in HOOKS:
            raise PluginError(
                f"it defines {name!r}, which is not a hook{nearest(name, HOOKS)}; hooks: {', '.join(HOOKS)}"
            )
        if manager.parse_hookimpl_opts(plugin, name) is None:
            raise PluginError(f"its hook {name!r} is not marked: put @hookimpl above it")


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, DeepInferError) else f"{type(error).__name__}: {text}"


def _failure(outcome: Outcome) -> str:
    source = f" ({outcome.distribution} {outcome.version})" if outcome.distribution else ""
    return f"plugin {outcome.plugin!r}{source} failed to load: {outcome.reason}"


def _shared_names(enabled: Iterable[_Installed]) -> dict[str, str]:
    """For each plugin name that several distributions use, a sentence that tells how to end that."""
    origins: dict[str, list[str]] = {}
    for one in enabled:
        origins.setdefault(one.plugin, []).append(one.distribution)
    return {
        plugin: f"the distributions {', '.join(map(repr, names))} all name a plugin {plugin!r}: uninstall all but one, "
        f"or leave one out with DEEPINFER_PLUGINS_DISABLE={names[-1]}"
        for plugin, names in origins.items()
        if len(names) > 1
    }


def _unknown_disabled(disabled: Iterable[str], installed: Iterable[_Installed]) -> list[str]:
    known = {name for one in installed for name in (one.plugin, one.distribution) if name}
    return [
        f"DEEPINFER_PLUGINS_DISABLE names {name!r}, which is not an installed plugin{nearest(name, known)}"
        for name in sorted(set(disabled) - known)
    ]


def _settle(problems: Iterable[str], failures: list[str], conflicts: list[str], strict: bool) -> None:
    if strict and failures:
        lines = "; ".join(failures)
        raise PluginError(f"{lines} (DEEPINFER_PLUGINS_STRICT is set, so that any failing plugin stops the program)")
    if conflicts:
        raise PluginError("; ".join(conflicts))
    for line in problems:
        logger.warning("%s", line)


def _report(manager: pluggy.PluginManager) -> dict[str, str]:
    try:
        return {str(key): str(value) for part in manager.hook.deepinfer_report() for key, value in part.items()}
    except Exception as error:
        return {"error": _reason(error)}
