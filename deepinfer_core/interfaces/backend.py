"""The backend contract: what a hardware vendor implements, and nothing of how the engine uses it.

Required of a backend: name, interface, probe, capabilities, open. Required of its device: memory, torch_device,
kernels, queue, communicator, close. Everything else is optional and named by a capability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from deepinfer_core.interfaces.ops import Kernel, RowFormat, WeightFormat

if TYPE_CHECKING:
    import torch

    from deepinfer_core.interfaces.parallel import Communicator, Group

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Determinism(IntEnum):
    """How much of a row's result depends on its surroundings. Each level includes the ones below."""

    NONE = 0
    SAME_BATCH = 1  # the same batch gives the same bits
    BATCH_INVARIANT = 2  # each row's bits depend on that row alone
    RANK_INVARIANT = 3  # nor on the number of ranks


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a backend can run here. `reason` is one sentence for people, also when it is available."""

    available: bool
    reason: str
    devices: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend promises. Defaults promise little; the engine checks every option against it before building."""

    dtypes: tuple[str, ...] = ("float32",)
    weight_formats: tuple[WeightFormat, ...] = (WeightFormat.F32, WeightFormat.BF16)
    kv_formats: tuple[RowFormat, ...] = (RowFormat.F32,)
    determinism: Determinism = Determinism.NONE
    collectives: tuple[str, ...] = ()
    graph_capture: bool = False
    max_step_tokens: int = 8192
    max_slots: int = 1024
    block_sizes: tuple[int, ...] = (64,)
    accelerator: bool = True  # False only where the device is the host itself


@runtime_checkable
class Event(Protocol[T_co]):
    """The completion of one submitted function."""

    def done(self) -> bool:
        """True once the function's work, device work included, has finished or failed."""

    def wait(self) -> T_co:
        """Block until done; return the function's value or raise what it raised."""


@runtime_checkable
class Queue(Protocol):
    """An ordered execution queue. What is submitted runs in order of submission, beside the submitting thread."""

    def submit(self, fn: Callable[[], T]) -> Event[T]:
        """Enqueue `fn`. It must not wait for an event of this queue. An exception is kept for `wait`."""

    def close(self) -> None:
        """Finish what was submitted, then refuse more."""


@runtime_checkable
class Graph(Protocol[T_co]):
    """Recorded work. It reads and writes the very tensors that it was recorded with, whatever they hold by then."""

    @property
    def result(self) -> T_co:
        """What the recorded function returned. Its tensors are filled anew by every replay."""

    def replay(self) -> None:
        """Do the work again. Called on the queue's thread; waits for nothing."""


@runtime_checkable
class GraphRunner(Protocol):
    """Records work so that it can be launched again at less cost."""

    def capture(self, fn: Callable[[], T]) -> Graph[T]:
        """Record the kernels that `fn` launches; `result` is valid from then on. Called on the queue's thread.

        What `fn` raises is raised, nothing is recorded then, and the device goes on as before.
        """


@runtime_checkable
class GraphDevice(Protocol):
    """What a device has beside the required members where its backend claims `graph_capture`."""

    def graph_runner(self) -> GraphRunner: ...


@runtime_checkable
class Device(Protocol):
    """One opened device."""

    @property
    def torch_device(self) -> torch.device: ...

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes that the engine may plan with."""

    def kernels(self) -> Mapping[str, Kernel]:
        """Op name -> kernel with the reference's signature. A missing op runs on its reference, and is reported."""

    def queue(self) -> Queue:
        """A new execution queue on this device."""

    def communicator(self, group: Group) -> Communicator:
        """Collectives among the ranks of `group`. With more than one, torch.distributed's default process group, which
        has all ranks, exists before this is called, and every rank of `group` calls it."""

    def close(self) -> None: ...


@runtime_checkable
class Backend(Protocol):
    """One kind of hardware. Constructing it and probing it must not touch the device."""

    @property
    def name(self) -> str: ...

    @property
    def interface(self) -> int:
        """The contract version that it was written for (`deepinfer_core.plugin.version.INTERFACE`)."""

    def probe(self) -> Probe: ...

    def capabilities(self) -> Capabilities: ...

    def open(self, index: int) -> Device: ...
