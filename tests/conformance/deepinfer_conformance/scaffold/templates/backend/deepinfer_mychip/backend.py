"""The required members of a backend and of its device, and nothing more. The queue is in `queue.py`.

The contract is deepinfer_core/interfaces/backend.py. `probe`, `torch_device` and `memory` pretend that the host is a
chip: put the device's own in their place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from deepinfer_core.api.errors import ConfigError
from deepinfer_core.interfaces.backend import Capabilities, Determinism, Probe
from deepinfer_core.interfaces.ops import Kernel, RowFormat, WeightFormat
from deepinfer_core.interfaces.parallel import Communicator, Group
from deepinfer_core.parallel.communicator import OneRankCommunicator

from deepinfer_mychip.kernels import KERNELS
from deepinfer_mychip.queue import MyChipQueue


class MyChipBackend:
    """Making and probing it must not touch the device."""

    name = "mychip"
    interface = 1

    def probe(self) -> Probe:
        return Probe(available=True, reason="pretends that the host is a chip", devices=("mychip 0",))

    def capabilities(self) -> Capabilities:
        """Each promise is checked by the conformance suite. The formats are all there because references read them."""
        return Capabilities(
            dtypes=("float32",),
            weight_formats=tuple(WeightFormat),
            kv_formats=tuple(RowFormat),
            determinism=Determinism.SAME_BATCH,
            accelerator=True,
        )

    def open(self, index: int) -> MyChipDevice:
        if index != 0:
            raise ConfigError(f"device_index = {index} is not allowed: mychip has one device, number 0")
        return MyChipDevice()


class MyChipDevice:
    """One opened device. `close` ends the queues that it gave."""

    def __init__(self) -> None:
        self._queues: list[MyChipQueue] = []

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu")

    def memory(self) -> tuple[int, int]:
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")

    def kernels(self) -> Mapping[str, Kernel]:
        return KERNELS

    def queue(self) -> MyChipQueue:
        self._queues.append(MyChipQueue())
        return self._queues[-1]

    def communicator(self, group: Group) -> Communicator:
        if group.size != 1:
            raise ConfigError(f"group {group.name!r} has {group.size} ranks: mychip runs one rank")
        return OneRankCommunicator(group)

    def close(self) -> None:
        for queue in self._queues:
            queue.close()
        self._queues.clear()
