"""The plain backend that mutants are made of: references on the host, and every capability in its simplest form.

It passes every test that a mutant fails, and is far too slow to serve: ops whose references round by their place in the
batch run row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import wraps
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from deepinfer_conformance.inputs import tensors
from deepinfer_conformance.mutants.gloo import GlooCommunicator
from deepinfer_conformance.op_rows import ROW_PARAMETERS, picked, row_count
from deepinfer_core.api.errors import ConfigError, DeviceError
from deepinfer_core.interfaces.backend import Capabilities, Determinism, Probe
from deepinfer_core.interfaces.ops import Kernel, RowFormat, WeightFormat
from deepinfer_core.interfaces.parallel import Communicator, Group
from deepinfer_core.ops.catalogue import CATALOGUE
from deepinfer_core.parallel.communicator import OneRankCommunicator

T = TypeVar("T")

EXACT = ("embedding", "hash_ngrams", "select_blocks", "select_topk", "sample_tokens", "verify_drafts")
BY_ROW = tuple(op for op in ROW_PARAMETERS if op not in EXACT)


class PlainBackend:
    """Registered under `name`. A mutant derives from it, or gives kernels with a fault."""

    interface = 1

    def __init__(self, name: str, kernels: Mapping[str, Kernel] | None = None) -> None:
        self.name = name
        self._kernels: dict[str, Kernel] = {op: row_by_row(op) for op in BY_ROW}
        self._kernels |= {"experts": expert_by_row, **(kernels or {})}

    def probe(self) -> Probe:
        return Probe(available=True, reason="computes on the host, to test the conformance suite", devices=("host",))

    def capabilities(self) -> Capabilities:
        return Capabilities(
            dtypes=("float32", "bfloat16"),
            weight_formats=tuple(WeightFormat),
            kv_formats=tuple(RowFormat),
            determinism=Determinism.RANK_INVARIANT,
            collectives=("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier"),
            graph_capture=True,
            block_sizes=(16, 64),
            accelerator=False,
        )

    def open(self, index: int) -> PlainDevice:
        if index != 0:
            raise ConfigError(f"device_index = {index} is not allowed: there is one device, number 0")
        return PlainDevice(self._kernels)


class PlainDevice:
    """The host."""

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self._kernels = kernels
        self._queues: list[PlainQueue] = []
        self._closed = False

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu")

    def memory(self) -> tuple[int, int]:
        return 1 << 32, 1 << 33

    def kernels(self) -> Mapping[str, Kernel]:
        return self._kernels

    def queue(self) -> PlainQueue:
        if self._closed:
            raise DeviceError("the device is closed: open it again")
        self._queues.append(PlainQueue())
        return self._queues[-1]

    def communicator(self, group: Group) -> Communicator:
        return OneRankCommunicator(group) if group.size == 1 else GlooCommunicator(group)

    def graph_runner(self) -> PlainGraphRunner:
        return PlainGraphRunner()

    def close(self) -> None:
        self._closed = True
        for queue in self._queues:
            queue.close()


class PlainQueue:
    """One worker keeps the order of submission."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1)
        self._closed = False

    def submit(self, fn: Callable[[], T]) -> PlainEvent[T]:
        if self._closed:
            raise DeviceError("the queue is closed and takes no more work: open the device again")
        return PlainEvent(self._worker.submit(fn))

    def close(self) -> None:
        self._closed = True
        self._worker.shutdown(wait=True)


class PlainEvent(Generic[T]):
    """The completion of one submitted function."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def wait(self) -> T:
        return self._future.result()


class PlainGraph(Generic[T]):
    """Recorded work, which here is the function itself: a replay calls it and copies what it gives into `result`."""

    def __init__(self, fn: Callable[[], T]) -> None:
        self._fn = fn
        self._result = fn()

    @property
    def result(self) -> T:
        return self._result

    def replay(self) -> None:
        for kept, new in zip(tensors(self._result), tensors(self._fn()), strict=True):
            kept.copy_(new)


class PlainGraphRunner:
    """Makes plain graphs."""

    def capture(self, fn: Callable[[], T]) -> PlainGraph[T]:
        return PlainGraph(fn)


def row_by_row(name: str) -> Kernel:
    """The op's reference, called once for each row: no row can know of another."""
    reference, parameters = CATALOGUE[name].reference, ROW_PARAMETERS[name]

    @wraps(reference)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        arguments = dict(zip(reference.__code__.co_varnames, args, strict=False)) | kwargs
        count = row_count(name, arguments)
        if count == 0:
            return reference(**arguments)
        rows = (picked(arguments, parameters, torch.tensor([row])) for row in range(count))
        parts = [reference(**one) for one in rows]  # `first_row` still counts within the step's scratch
        if isinstance(parts[0], Tensor):
            return torch.cat(parts)
        return tuple(torch.cat(part) for part in zip(*parts, strict=True))

    return kernel


@wraps(CATALOGUE["experts"].reference)
def expert_by_row(x: Tensor, order: Tensor, offsets: Tensor, weights: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The reference over one (row, expert) pair at a time."""
    reference, top_k = CATALOGUE["experts"].reference, weights.shape[1]
    y = torch.zeros(len(order), x.shape[1], dtype=torch.float32)
    for place in range(int(offsets[-1])):
        row, choice = divmod(int(order[place]), top_k)
        bounds = (torch.arange(len(offsets)) > int((offsets <= place).sum()) - 1).to(torch.int32)
        one = torch.zeros(1, dtype=torch.int32)
        y[place] = reference(
            x[row : row + 1], one, bounds, weights[row : row + 1, choice : choice + 1], *args, **kwargs
        )
    return y
