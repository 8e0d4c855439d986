"""Ranks, groups, collectives and expert placement, as the engine sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks that take part in a collective, and which of them this process is."""

    name: str  # "dp", "cp", "ep" or "world"
    ranks: tuple[int, ...] = (0,)
    rank: int = 0

    @property
    def size(self) -> int:
        return len(self.ranks)


class Communicator(Protocol):
    """Collectives in a fixed reduction order. With one rank each returns its input unchanged."""

    @property
    def group(self) -> Group: ...

    def all_reduce(self, x: Tensor) -> Tensor:
        """Sum over ranks, same shape."""

    def all_gather(self, x: Tensor) -> Tensor:
        """[n, ...] -> [size * n, ...] in order of rank."""

    def reduce_scatter(self, x: Tensor) -> Tensor:
        """[size * n, ...] -> [n, ...]: this rank's part of the sum."""

    def all_to_all(self, x: Tensor, send_rows: list[int], receive_rows: list[int]) -> Tensor:
        """Rows of `x`, grouped by destination, to their ranks; the rows received, grouped by source."""

    def broadcast(self, x: Tensor, source: int) -> Tensor: ...

    def barrier(self) -> None: ...


class ExpertPlacement(Protocol):
    """Where the experts of each layer live. Consulted in one place, between routing and the expert op."""

    @property
    def num_physical(self) -> int:
        """Expert replicas over all ranks."""

    def to_physical(self, layer: int, experts: Tensor) -> Tensor:
        """int32 [T, k] logical expert ids -> physical replica ids, -1 kept."""
