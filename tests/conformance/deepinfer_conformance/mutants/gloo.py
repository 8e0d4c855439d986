"""Collectives on the host for the plain backend: everything is gathered, and summed in order of rank."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.parallel import Group


class GlooCommunicator:
    """Over torch.distributed's default process group, which has the ranks of `group`."""

    def __init__(self, group: Group) -> None:
        self._group = group

    @property
    def group(self) -> Group:
        return self._group

    def all_reduce(self, x: Tensor) -> Tensor:
        return torch.stack(self._gathered(x)).sum(0)

    def all_gather(self, x: Tensor) -> Tensor:
        return torch.cat(self._gathered(x))

    def reduce_scatter(self, x: Tensor) -> Tensor:
        return self.all_reduce(x).chunk(self._group.size)[self._group.rank]

    def all_to_all(self, x: Tensor, send_rows: list[int], receive_rows: list[int]) -> Tensor:
        pieces: list[list[Tensor]] = [[]] * self._group.size
        torch.distributed.all_gather_object(pieces, list(torch.split(x, send_rows)))
        return torch.cat([of_rank[self._group.rank] for of_rank in pieces])

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        return self._gathered(x)[source]

    def barrier(self) -> None:
        torch.distributed.barrier()

    def _gathered(self, x: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in self._group.ranks]
        torch.distributed.all_gather(parts, x.contiguous())
        return parts
