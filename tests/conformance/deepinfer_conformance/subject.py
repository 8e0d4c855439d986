"""The backend under test: found, probed and opened once a session, by the same door as an engine uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from deepinfer_core import LLM
from deepinfer_core.api.config import read_environment
from deepinfer_core.api.errors import DeepInferError, PluginError, nearest
from deepinfer_core.interfaces.backend import Backend, Capabilities, Device, Probe, Queue
from deepinfer_core.ops.table import OpTable, resolve
from deepinfer_core.plugin.loader import Plugins, load_plugins
from deepinfer_core.plugin.version import refusal

T = TypeVar("T")

MUTANT = "mutant:"  # what the names of deliberately broken backends begin with


class Unavailable(DeepInferError):
    """The backend is not there or cannot run here, so nothing can be said of it."""

    code = "backend_unavailable"
    exit_code = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """An open backend. `ops` are its kernels with references where it has none; `fallbacks` names those."""

    name: str
    plugins: Plugins
    backend: Backend
    probe: Probe
    capabilities: Capabilities
    device: Device
    queue: Queue
    ops: OpTable

    @property
    def torch_device(self) -> torch.device:
        return self.device.torch_device

    @property
    def fallbacks(self) -> tuple[str, ...]:
        return self.ops.fallbacks

    def run(self, fn: Callable[[], T]) -> T:
        """What `fn` gives on the device's queue, where kernels run in an engine."""
        return self.queue.submit(fn).wait()

    def llm(self, model: str, **options: Any) -> LLM:
        """A model on this backend. The caller closes it."""
        return LLM(model, backend=self.name, plugins=self.plugins, **options)

    def close(self) -> None:
        self.device.close()


def open_subject(name: str) -> Subject:
    """Raises `Unavailable`, with the reason, when the backend is unknown, says that it cannot run here, or fails."""
    try:
        plugins = load_plugins(read_environment(), stop=False)
        if name.startswith(MUTANT):
            _register_mutant(name, plugins)
        plugins.registry.backends.plugin_of(name)  # raises, with what is registered and which plugins failed
        return _open(name, plugins)
    except DeepInferError as error:
        raise Unavailable(str(error)) from error
    except Exception as error:
        raise Unavailable(f"backend {name!r} could not be opened: {type(error).__name__}: {error}") from error


def _open(name: str, plugins: Plugins) -> Subject:
    backend = plugins.registry.backends[name]
    if (reason := refusal(backend.interface, 1)) is not None:
        raise Unavailable(f"backend {name!r}: {reason}")
    probe = backend.probe()
    if not probe.available:
        raise Unavailable(f"backend {name!r} cannot run here: {probe.reason}")
    capabilities = backend.capabilities()
    device = backend.open(0)
    try:
        return Subject(name, plugins, backend, probe, capabilities, device, device.queue(), resolve(device.kernels()))
    except BaseException:
        device.close()
        raise


def _register_mutant(name: str, plugins: Plugins) -> None:
    from deepinfer_conformance.mutants import MUTANTS

    short = name.removeprefix(MUTANT)
    if short not in MUTANTS:
        raise PluginError(f"there is no mutant {short!r}{nearest(short, MUTANTS)}; mutants: {', '.join(MUTANTS)}")
    plugins.registry.backends.registrar("deepinfer_conformance")(name, MUTANTS[short].make)
