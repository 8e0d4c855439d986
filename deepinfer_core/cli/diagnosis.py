"""What `deepinfer doctor` finds out. Every look is guarded: a fault becomes a finding and the rest goes on."""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from deepinfer_core.api.config import Environment, build_record, read_environment
from deepinfer_core.api.errors import DeepInferError, DeviceError
from deepinfer_core.plugin.choose import Candidate, Choice, choose_backend, survey
from deepinfer_core.plugin.loader import Plugins, load_plugins
from deepinfer_core.plugin.version import INTERFACE

if TYPE_CHECKING:
    from torch import Tensor

    from deepinfer_core.interfaces.backend import Backend, Device, Queue
    from deepinfer_core.interfaces.ops import OpCase, OpSpec
    from deepinfer_core.ops.table import OpTable

REQUIRED = ("deepinfer-core", "torch", "numpy", "safetensors", "tokenizers", "pluggy")
OPTIONAL: Mapping[str, str] = {  # package -> what is off without it
    "deepseek-recipe": "chat prompts and the parsing of chat answers are off",
    "tqdm": "progress is shown as plain lines",
    "huggingface_hub": "models cannot be named by their hub name",
}
CHECKED_OPS = ("rms_norm", "linear")  # each has one tensor as its result


@dataclass(slots=True)
class Diagnosis:
    """Everything found, ready for JSON, and what is wrong with it."""

    facts: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    device_failed: bool = False

    @contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """A failure inside becomes an error of the diagnosis."""
        try:
            yield
        except DeepInferError as error:
            self.errors.append(str(error))
            self.device_failed |= isinstance(error, DeviceError)
        except Exception as error:
            self.errors.append(f"{what} failed: {type(error).__name__}: {error}")


def diagnose(requested: str | None, strict: bool) -> Diagnosis:
    """Look at everything, on the backend asked for or the one that would be chosen."""
    found = Diagnosis()
    _look_at_packages(found)
    environment = _look_at_environment(found)
    plugins = load_plugins(environment, stop=False)
    found.warnings.extend(environment.unread(plugins.managers))
    _look_at_plugins(found, plugins, environment)
    found.facts["backends"] = [_describe(candidate) for candidate in survey(plugins.registry)]
    choice: Choice | None = None
    with found.guarded("choosing a backend"):
        choice = choose_backend(plugins.registry, requested, environment, build_record())
        found.facts["chosen"] = {"backend": choice.backend.name, "why": choice.lines}
    if choice is not None:
        _look_at_device(found, choice.backend)
    if strict:
        found.errors.extend(found.warnings)
        found.warnings.clear()
    return found


def _look_at_packages(found: Diagnosis) -> None:
    found.facts["interface"] = INTERFACE
    found.facts["system"] = {"python": platform.python_version(), "platform": platform.platform()}
    versions = {name: _version(name) for name in (*REQUIRED, *OPTIONAL)}
    found.facts["packages"] = versions
    for name in REQUIRED:
        if versions[name] is None:
            found.errors.append(f"package {name} is not installed: run build.sh, or install it with pip")
    for name, loss in OPTIONAL.items():
        if versions[name] is None:
            found.warnings.append(f"package {name} is not installed: {loss}")
    try:
        importlib.import_module("deepinfer_core._native")
    except ImportError as error:
        found.errors.append(f"the C++ core cannot be loaded ({error}): build it with build.sh")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _look_at_environment(found: Diagnosis) -> Environment:
    environment = read_environment({})
    with found.guarded("reading the environment"):
        environment = read_environment()
    found.facts["environment"] = asdict(environment) | {"plugins_disabled": sorted(environment.plugins_disabled)}
    path = build_record()
    found.facts["build"] = {"path": str(path), "record": None}
    with found.guarded(f"reading the build record {path}"):
        if path.exists():
            found.facts["build"]["record"] = json.loads(path.read_text(encoding="utf-8"))
    return environment


def _look_at_plugins(found: Diagnosis, plugins: Plugins, environment: Environment) -> None:
    found.facts["plugins"] = [asdict(outcome) for outcome in plugins.outcomes]
    found.facts["reports"] = plugins.reports()
    conflicts = plugins.registry.conflicts()
    failures = plugins.registry.failures if environment.plugins_strict else []
    for problem in plugins.problems:
        (found.errors if problem in conflicts or problem in failures else found.warnings).append(problem)


def _describe(candidate: Candidate) -> dict[str, Any]:
    probe = candidate.probe
    return {
        "name": candidate.name,
        "available": candidate.available,
        "accelerator": candidate.accelerator,
        "reason": probe.reason,
        "devices": probe.devices,
        "versions": dict(probe.versions),
    }


def _look_at_device(found: Diagnosis, backend: Backend) -> None:
    """Open the backend's first device, see which ops have kernels, and compute something on it."""
    from deepinfer_core.ops.table import resolve

    with found.guarded(f"opening device 0 of backend {backend.name}"):
        device = backend.open(0)
        try:
            free, total = device.memory()
            table = resolve(device.kernels())
            found.facts["device"] = {
                "memory": {"free": free, "total": total},
                "determinism": backend.capabilities().determinism.name.lower(),
                "fallbacks": table.fallbacks,
            }
            if table.fallbacks:
                found.warnings.append(f"these ops run on their reference implementation: {', '.join(table.fallbacks)}")
            found.facts["check"] = _check(found, device, table)
        finally:
            device.close()


def _check(found: Diagnosis, device: Device, table: OpTable) -> dict[str, int]:
    """Run the cases of a few ops through the device's queue. Returns op -> number of cases that agreed."""
    from deepinfer_core.ops.catalogue import CATALOGUE

    queue = device.queue()
    agreed = {}
    for name in CHECKED_OPS:
        bad, good = _compare(CATALOGUE[name], getattr(table, name), device, queue)
        agreed[name] = good
        for case in bad:
            found.device_failed = True
            found.errors.append(f"op {name} gives wrong numbers on this device (case {case}): do not use this backend")
    return agreed


def _compare(spec: OpSpec, kernel: Callable[..., Tensor], device: Device, queue: Queue) -> tuple[list[str], int]:
    """(names of the cases where the kernel differs from the reference on the host, number of those that agree)."""
    import torch

    bound = spec.tolerances["float32"]
    host = spec.cases(torch.device("cpu"), torch.float32, 0)
    there = spec.cases(device.torch_device, torch.float32, 0)
    bad, good = [], 0
    for expected, given in zip(host, there, strict=True):
        reference = spec.reference(*expected.args, **expected.kwargs)
        result = queue.submit(_call(kernel, given)).wait().cpu()
        if torch.allclose(result, reference, rtol=bound.relative, atol=bound.absolute, equal_nan=True):
            good += 1
        else:
            bad.append(expected.name)
    return bad, good


def _call(kernel: Callable[..., Tensor], case: OpCase) -> Callable[[], Tensor]:
    return lambda: kernel(*case.args, **case.kwargs)
