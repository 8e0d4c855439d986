"""What one rank of several computes for each law of the collectives. The tests compare what all ranks answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]  # missing from torch's stubs

from deepinfer_conformance.laws.moving import HOST, moved
from deepinfer_conformance.laws.ranks import Answer, on_ranks
from deepinfer_conformance.laws.rows import chosen_experts
from deepinfer_conformance.laws.watchdog import Outcome
from deepinfer_conformance.laws.wide import experts_arguments
from deepinfer_conformance.subject import Subject
from deepinfer_core.interfaces.backend import Device
from deepinfer_core.interfaces.ops import WeightFormat
from deepinfer_core.interfaces.parallel import Communicator, Group
from deepinfer_core.ops.cases import Maker
from deepinfer_core.ops.moe import experts, moe_combine


@dataclass(frozen=True, slots=True)
class Rank:
    """What a rank works with. `store` is shared by all ranks, beside the collectives that are on trial."""

    subject: Subject
    device: Device
    group: Group
    seed: int
    store: Store

    def on_device(self, x: Tensor) -> Tensor:
        return x.to(self.device.torch_device, copy=True)


Law = Callable[[Rank], Answer]
Collective = Callable[[Communicator, Rank], Tensor]

ROWS, WIDTH = 5, 33
BLINK = 0.2  # seconds


def part(seed: int, rank: int, rows: int = ROWS) -> Tensor:
    """float32 [rows, WIDTH] on the host: what a rank brings, of many magnitudes."""
    make = Maker(HOST, torch.float32, (1000 * seed + rank) % 2**63)
    return make.normal(rows, WIDTH) * 10.0 ** make.integers(-4, 5, rows, 1)


def sent(rank: int, size: int) -> list[int]:
    """How many rows a rank sends to each other: none to the last, more to those further up."""
    return [rank + 2 * to + 1 if to < size - 1 or rank == 0 else 0 for to in range(size)]


def _collective(run: Collective) -> Law:
    """Twice on a queue, so that the order of reduction shows."""

    def law(rank: Rank) -> Answer:
        communicator, queue = rank.device.communicator(rank.group), rank.device.queue()
        first, again = (queue.submit(lambda: run(communicator, rank).to(HOST, copy=True)).wait() for _ in range(2))
        return {"first": first, "again": again, "group": (communicator.group.ranks, communicator.group.rank)}

    return law


def _all_reduce(communicator: Communicator, rank: Rank) -> Tensor:
    return communicator.all_reduce(rank.on_device(part(rank.seed, rank.group.rank)))


def _all_gather(communicator: Communicator, rank: Rank) -> Tensor:
    return communicator.all_gather(rank.on_device(part(rank.seed, rank.group.rank)))


def _reduce_scatter(communicator: Communicator, rank: Rank) -> Tensor:
    return communicator.reduce_scatter(rank.on_device(part(rank.seed, rank.group.rank, rank.group.size * ROWS)))


def _all_to_all(communicator: Communicator, rank: Rank) -> Tensor:
    own, size = rank.group.rank, rank.group.size
    send = sent(own, size)
    receive = [sent(other, size)[own] for other in range(size)]
    return communicator.all_to_all(rank.on_device(part(rank.seed, own, sum(send))), send, receive)


def _broadcast(communicator: Communicator, rank: Rank) -> Tensor:
    return communicator.broadcast(rank.on_device(part(rank.seed, rank.group.rank)), rank.group.size - 1)


def _strided(communicator: Communicator, rank: Rank) -> Tensor:
    """`all_reduce` of a slice, and what lies around it afterwards."""
    wide = rank.on_device(torch.zeros(ROWS, 2 * WIDTH))
    wide[:, ::2] = rank.on_device(part(rank.seed, rank.group.rank))
    total = communicator.all_reduce(wide[:, ::2])
    return torch.cat([total, wide[:, 1::2]])


def _barrier(rank: Rank) -> Answer:
    """Every rank but the last is at the barrier before the last one comes; none may have passed it by then."""
    communicator, store, others = rank.device.communicator(rank.group), rank.store, range(rank.group.size - 1)
    queue = rank.device.queue()

    def at_barrier() -> None:
        store.set(f"came {rank.group.rank}", "yes")
        communicator.barrier()
        store.set(f"passed {rank.group.rank}", "yes")

    if rank.group.rank in others:
        queue.submit(at_barrier).wait()
        return {"early": []}
    store.wait([f"came {other}" for other in others])
    waiting = Outcome(lambda: store.wait([f"passed {other}" for other in others]))
    waiting.pending(BLINK)  # time enough for whoever does not wait
    early = [other for other in others if store.check([f"passed {other}"])]
    queue.submit(at_barrier).wait()
    return {"early": early}


def _experts(rank: Rank) -> Answer:
    """Rank r has experts r, r + size, ...; others are padding to it. Parts meet by a sum with zeros, which is exact."""
    arguments = experts_arguments(Maker(HOST, torch.float32, rank.seed), WeightFormat.F32, rows=29, count=6, top_k=3)
    there, ops, group = moved(arguments, rank.device.torch_device), rank.subject.ops, rank.group
    communicator, queue = rank.device.communicator(group), rank.device.queue()
    rows, top_k = arguments["weights"].shape
    chosen = chosen_experts(there["order"], there["offsets"])
    mine = torch.where(chosen % group.size == group.rank, chosen, -1).view(rows, top_k)

    def spread() -> Tensor:
        order, offsets = ops.moe_permute(mine, 6)
        parts = torch.empty(rows * top_k, there["x"].shape[1], device=mine.device)
        parts[order.long()] = ops.experts(**{**there, "order": order, "offsets": offsets})  # by row and choice
        return ops.moe_combine(communicator.all_reduce(parts)[there["order"].long()], there["order"], top_k)

    def alone() -> Tensor:
        return ops.moe_combine(ops.experts(**there), there["order"], top_k)

    together, apart = queue.submit(lambda: alone().to(HOST)), queue.submit(lambda: spread().to(HOST))
    return {
        "spread": apart.wait(),
        "alone": together.wait(),
        "expected": moe_combine(experts(**arguments), arguments["order"], top_k),
    }


LAWS: Mapping[str, Law] = {
    "all_gather": _collective(_all_gather),
    "all_to_all": _collective(_all_to_all),
    "broadcast": _collective(_broadcast),
    "all_reduce": _collective(_all_reduce),
    "strided": _collective(_strided),
    "reduce_scatter": _collective(_reduce_scatter),
    "barrier": _barrier,
    "experts": _experts,
}
NEEDS = {"strided": "all_reduce", "experts": "all_reduce"}  # collectives of laws that are not named like them


def on_all_ranks(subject: Subject, law: str, seed: int) -> list[Answer]:
    """What each rank answers to a law whose collective the backend claims."""
    claimed = subject.capabilities.collectives
    return on_ranks(subject.name, law, [one for one in LAWS if NEEDS.get(one, one) in claimed], seed)
