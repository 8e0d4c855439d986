"""Faults to order: the backend under test with one kernel replaced, as a failing device would look to an engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

from deepinfer_conformance.subject import Subject
from deepinfer_core.interfaces.backend import Backend, Capabilities, Device, Probe, Queue
from deepinfer_core.interfaces.ops import Kernel
from deepinfer_core.interfaces.parallel import Communicator, Group

PLUGIN = "deepinfer_conformance.faults"
Wrap = Callable[[Kernel], Kernel]

_numbers = itertools.count()


def at_call(number: int, error: Exception) -> Wrap:
    """Kernels that raise `error` at their call of this number, counted from 0, and work before and after."""

    def wrap(kernel: Kernel) -> Kernel:
        calls = itertools.count()

        @wraps(kernel)  # with its signature
        def faulty(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == number:
                raise error
            return kernel(*args, **kwargs)

        return faulty

    return wrap


@contextmanager
def faulty(subject: Subject, op: str, wrap: Wrap) -> Iterator[Subject]:
    """The subject with the op's kernel wrapped, in engines that its `llm` makes."""
    name = f"{subject.name} with a faulty {op} {next(_numbers)}"
    backends = subject.plugins.registry.backends
    backends.registrar(PLUGIN)(
        name, lambda: _FaultyBackend(name, subject.backend, {op: wrap(getattr(subject.ops, op))})
    )
    try:
        yield replace(subject, name=name)
    finally:
        backends.withdraw(PLUGIN)


class _FaultyBackend:
    """The backend, whose devices have other kernels for some ops."""

    def __init__(self, name: str, backend: Backend, kernels: Mapping[str, Kernel]) -> None:
        self.name = name
        self.interface = backend.interface
        self._backend = backend
        self._kernels = kernels

    def probe(self) -> Probe:
        return self._backend.probe()

    def capabilities(self) -> Capabilities:
        return self._backend.capabilities()

    def open(self, index: int) -> Device:
        return _FaultyDevice(self._backend.open(index), self._kernels)


class _FaultyDevice:
    def __init__(self, device: Device, kernels: Mapping[str, Kernel]) -> None:
        self._device = device
        self._kernels = kernels
        self.torch_device = device.torch_device

    def memory(self) -> tuple[int, int]:
        return self._device.memory()

    def kernels(self) -> Mapping[str, Kernel]:
        return {**self._device.kernels(), **self._kernels}

    def queue(self) -> Queue:
        return self._device.queue()

    def communicator(self, group: Group) -> Communicator:
        return self._device.communicator(group)

    def close(self) -> None:
        self._device.close()
