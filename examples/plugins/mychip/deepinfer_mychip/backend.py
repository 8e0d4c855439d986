"""The required members of a backend and of its device, and nothing more."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

from deepinfer_core.interfaces.backend import Capabilities, Determinism, Probe
from deepinfer_core.interfaces.ops import Kernel, RowFormat, WeightFormat
from deepinfer_core.interfaces.parallel import Communicator, Group
from deepinfer_core.parallel.communicator import OneRankCommunicator
from deepinfer_mychip.kernels import rms_norm

T = TypeVar("T")


class MyChipBackend:
    """Making and probing it must not touch the device."""

    name = "mychip"
    interface = 1

    def probe(self) -> Probe:
        return Probe(available=True, reason="pretends that the host is a chip", devices=("mychip 0",))

    def capabilities(self) -> Capabilities:
        return Capabilities(
            dtypes=("float32",),
            weight_formats=tuple(WeightFormat),
            kv_formats=tuple(RowFormat),
            determinism=Determinism.SAME_BATCH,
            accelerator=True,
        )

    def open(self, index: int) -> MyChipDevice:
        return MyChipDevice()


class MyChipDevice:
    """One opened device."""

    def __init__(self) -> None:
        self._queues: list[MyChipQueue] = []

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu")

    def memory(self) -> tuple[int, int]:
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")

    def kernels(self) -> Mapping[str, Kernel]:
        return {"rms_norm": rms_norm}

    def queue(self) -> MyChipQueue:
        self._queues.append(MyChipQueue())
        return self._queues[-1]

    def communicator(self, group: Group) -> Communicator:
        return OneRankCommunicator(group)

    def close(self) -> None:
        for queue in self._queues:
            queue.close()


class MyChipQueue:
    """One worker keeps the order of submission. A real device would record an event on its stream instead."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mychip")

    def submit(self, fn: Callable[[], T]) -> MyChipEvent[T]:
        return MyChipEvent(self._worker.submit(fn))

    def close(self) -> None:
        self._worker.shutdown(wait=True)


class MyChipEvent(Generic[T]):
    """The completion of one submitted function."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def wait(self) -> T:
        return self._future.result()
