"""A device whose ops are watched: each call's time and the weight bytes that it reads, or its arguments for replay.

Times are of the calling thread: they mean kernel time where a kernel returns when it is done, as on the host.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from deepinfer_core.interfaces.ops import Kernel, Weight
from deepinfer_core.ops.catalogue import CATALOGUE

if TYPE_CHECKING:
    import torch

    from deepinfer_core.interfaces.backend import Device, Queue
    from deepinfer_core.interfaces.parallel import Communicator, Group

GATHERS = frozenset({"embedding", "engram_lookup"})  # ops that read a few rows of their table


class Watcher(Protocol):
    """Told of every op call, after it returned, on the queue's thread."""

    def on_call(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], nanoseconds: int) -> None: ...


class WatchedDevice:
    """The same device with every op, kernel or reference, reported to a watcher."""

    def __init__(self, device: Device, watcher: Watcher) -> None:
        self._device = device
        self._watcher = watcher

    @property
    def torch_device(self) -> torch.device:
        return self._device.torch_device

    def memory(self) -> tuple[int, int]:
        return self._device.memory()

    def kernels(self) -> Mapping[str, Kernel]:
        own = self._device.kernels()
        return {name: self._watched(name, own.get(name, spec.reference)) for name, spec in CATALOGUE.items()}

    def queue(self) -> Queue:
        return self._device.queue()

    def communicator(self, group: Group) -> Communicator:
        return self._device.communicator(group)

    def close(self) -> None:
        self._device.close()

    def _watched(self, name: str, kernel: Kernel) -> Kernel:
        report: Callable[..., None] = self._watcher.on_call

        @functools.wraps(kernel)  # keeps the signature that the op table checks
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter_ns()
            result = kernel(*args, **kwargs)
            report(name, args, kwargs, time.perf_counter_ns() - start)
            return result

        return call


@dataclass(slots=True)
class OpTotals:
    """A watcher that adds up: nanoseconds in each op, and weight bytes read, since `reset`."""

    nanoseconds: dict[str, int]
    weight_bytes: int = 0

    def on_call(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], nanoseconds: int) -> None:
        self.nanoseconds[name] = self.nanoseconds.get(name, 0) + nanoseconds
        self.weight_bytes += weight_bytes(name, args)

    def reset(self) -> None:
        self.nanoseconds.clear()
        self.weight_bytes = 0


def weight_bytes(name: str, args: tuple[Any, ...]) -> int:
    """Bytes of stored weights that one call must read: of a gather the rows asked for, of expert stacks the experts
    that have rows."""
    weights = [arg for arg in args if isinstance(arg, Weight)]
    whole = sum(_nbytes(weight) for weight in weights)
    if name in GATHERS:
        index = next(arg for arg in args if isinstance(arg, Tensor))
        return whole // int(weights[0].data.shape[0]) * index.numel()
    if name == "experts":
        offsets: Tensor = args[2]
        busy = int((offsets[1:] > offsets[:-1]).sum())
        return whole // int(weights[0].data.shape[0]) * busy
    return whole


def _nbytes(weight: Weight) -> int:
    return weight.data.nbytes + (0 if weight.scale is None else weight.scale.nbytes)
