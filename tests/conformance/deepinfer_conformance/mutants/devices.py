"""Devices, queues and groups with one fault each, on the plain backend."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor

from deepinfer_conformance.mutants.gloo import GlooCommunicator
from deepinfer_conformance.mutants.plain import (
    PlainBackend,
    PlainDevice,
    PlainEvent,
    PlainGraph,
    PlainGraphRunner,
    PlainQueue,
)
from deepinfer_core.interfaces.backend import Capabilities
from deepinfer_core.interfaces.parallel import Communicator, Group

T = TypeVar("T")


class OtherDevice(PlainBackend):
    """The plain backend with devices of another class."""

    def __init__(self, name: str, device: Callable[..., PlainDevice]) -> None:
        super().__init__(name)
        self._device = device

    def open(self, index: int) -> PlainDevice:
        super().open(index)
        return self._device(self._kernels)


# --- queues --------------------------------------------------------------------------------------------------------


class CallersQueue(PlainQueue):
    """Runs a function before `submit` returns: whoever submits waits for the device."""

    def submit(self, fn: Callable[[], T]) -> PlainEvent[T]:
        event = super().submit(fn)
        event._future.exception()  # waits
        return event


class ForgivingEvent(PlainEvent[T]):
    """Keeps what a function raised to itself."""

    def wait(self) -> Any:
        return None if self._future.exception() is not None else self._future.result()


class ForgivingQueue(PlainQueue):
    """Gives forgiving events."""

    def submit(self, fn: Callable[[], T]) -> PlainEvent[T]:
        return ForgivingEvent(super().submit(fn)._future)


class HastyEvent(PlainEvent[T]):
    """Says that it is done from the first."""

    def done(self) -> bool:
        return True


class HastyQueue(PlainQueue):
    """Gives hasty events."""

    def submit(self, fn: Callable[[], T]) -> PlainEvent[T]:
        return HastyEvent(super().submit(fn)._future)


class NewestFirstQueue(PlainQueue):
    """Runs what was submitted last before what has been waiting."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._waiting: list[tuple[Callable[[], Any], Future[Any]]] = []

    def submit(self, fn: Callable[[], T]) -> PlainEvent[T]:
        future: Future[T] = Future()
        with self._lock:
            self._waiting.append((fn, future))
        super().submit(self._run_newest)
        return PlainEvent(future)

    def _run_newest(self) -> None:
        with self._lock:
            fn, future = self._waiting.pop()
        try:
            future.set_result(fn())
        except BaseException as error:
            future.set_exception(error)


class DroppingQueue(PlainQueue):
    """Closing drops what has not begun."""

    def close(self) -> None:
        self._closed = True
        self._worker.shutdown(wait=False, cancel_futures=True)


def with_queue(queue: Callable[[], PlainQueue]) -> type[PlainDevice]:
    """Devices that give such queues."""

    class Device(PlainDevice):
        def queue(self) -> PlainQueue:
            super().queue()
            self._queues.append(queue())
            return self._queues[-1]

    return Device


# --- the device ----------------------------------------------------------------------------------------------------


class BoastfulDevice(PlainDevice):
    """Has more memory free than there is."""

    def memory(self) -> tuple[int, int]:
        _, total = super().memory()
        return 2 * total, total


class LonelyDevice(PlainDevice):
    """Opening a device closes the one before."""

    _last: PlainDevice | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if LonelyDevice._last is not None:
            PlainDevice.close(LonelyDevice._last)
        LonelyDevice._last = self


# --- graphs --------------------------------------------------------------------------------------------------------


class StaleGraph(PlainGraph[T]):
    """A replay gives what was captured, whatever its inputs hold by now."""

    def __init__(self, fn: Callable[[], T]) -> None:
        super().__init__(fn)
        self._captured = self._result.clone() if isinstance(self._result, Tensor) else None

    def replay(self) -> None:
        if isinstance(self._result, Tensor) and self._captured is not None:
            self._result.copy_(self._captured)


class StaleDevice(PlainDevice):
    """Makes stale graphs."""

    def graph_runner(self) -> PlainGraphRunner:
        return _StaleRunner()


class _StaleRunner(PlainGraphRunner):
    def capture(self, fn: Callable[[], T]) -> PlainGraph[T]:
        return StaleGraph(fn)


class GraphlessBackend(PlainBackend):
    """Does not claim the graphs that its device offers."""

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), graph_capture=False)


# --- groups --------------------------------------------------------------------------------------------------------


class Swallowing(GlooCommunicator):
    """Sums nothing: each rank keeps its own."""

    def all_reduce(self, x: Tensor) -> Tensor:
        super().all_reduce(x)
        return x


class Impatient(GlooCommunicator):
    """Waits for nobody at a barrier."""

    def barrier(self) -> None:
        """Nothing."""


def with_groups(communicator: Callable[[Group], Communicator]) -> type[PlainDevice]:
    """Devices whose groups of several ranks communicate so."""

    class Device(PlainDevice):
        def communicator(self, group: Group) -> Communicator:
            return super().communicator(group) if group.size == 1 else communicator(group)

    return Device
