"""The CPU backend and its device: the host itself. Kernels are in `kernels/`, the worker thread in `queue.py`."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from itertools import count

import torch

from deepinfer_core.api.errors import ConfigError, PluginError
from deepinfer_core.interfaces.backend import Capabilities, Determinism, Probe
from deepinfer_core.interfaces.ops import Kernel, RowFormat, WeightFormat
from deepinfer_core.interfaces.parallel import Communicator, Group
from deepinfer_core.parallel.communicator import OneRankCommunicator
from deepinfer_cpu import BUILT_FOR
from deepinfer_cpu.memory import read_memory
from deepinfer_cpu.queue import WorkerQueue


class CpuBackend:
    """Always available. `threads` is how many the kernels and torch may use; None: torch's own count."""

    name = "cpu"
    interface = BUILT_FOR

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or torch.get_num_threads()

    def probe(self) -> Probe:
        machine = platform.machine()
        return Probe(
            available=True,
            reason=f"{machine}, {os.cpu_count()} processors, {self._threads} threads",
            devices=(machine,),
            versions={"torch": torch.__version__, "threads": str(self._threads)},
        )

    def capabilities(self) -> Capabilities:
        return Capabilities(
            dtypes=("float32",),
            weight_formats=tuple(WeightFormat),
            kv_formats=tuple(RowFormat),
            determinism=Determinism.BATCH_INVARIANT,
            block_sizes=(16, 32, 64, 128, 256),
            accelerator=False,
        )

    def open(self, index: int) -> CpuDevice:
        if index != 0:
            raise ConfigError(f"device_index = {index} is not allowed: the cpu backend has one device, number 0")
        return CpuDevice(self._threads)


class CpuDevice:
    """The host as a device. `close` ends the queues that it gave."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._queues: list[WorkerQueue] = []
        self._numbers = count()

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu")

    def memory(self) -> tuple[int, int]:
        return read_memory()

    def kernels(self) -> Mapping[str, Kernel]:
        try:
            from deepinfer_cpu._kernels import set_threads
            from deepinfer_cpu.kernels import kernels
        except ImportError as error:
            raise PluginError(f"the CPU kernels cannot be loaded ({error}): build them with build.sh") from error
        set_threads(self._threads)
        return kernels()

    def queue(self) -> WorkerQueue:
        default = torch.get_num_threads()
        queue = WorkerQueue(f"deepinfer-cpu-{next(self._numbers)}", self._limit_threads)
        torch.set_num_threads(default)  # the count holds on the queue's thread alone
        self._queues.append(queue)
        return queue

    def communicator(self, group: Group) -> Communicator:
        if group.size != 1:
            raise ConfigError(f"group {group.name!r} has {group.size} ranks: the cpu backend runs one rank")
        return OneRankCommunicator(group)

    def close(self) -> None:
        for queue in self._queues:
            queue.close()
        self._queues.clear()

    def _limit_threads(self) -> None:
        torch.get_num_threads()  # torch sets a thread's count up when first asked, and would overwrite ours later
        torch.set_num_threads(self._threads)
