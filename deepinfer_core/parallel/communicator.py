"""The communicator of a group with one rank. Real collectives come from a backend's device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepinfer_core.interfaces.parallel import Group

if TYPE_CHECKING:
    from torch import Tensor


class OneRankCommunicator:
    """Every collective returns its input unchanged: the sum, the gathering and the exchange over one rank."""

    def __init__(self, group: Group) -> None:
        assert group.size == 1, f"{group} has more than one rank"
        self._group = group

    @property
    def group(self) -> Group:
        return self._group

    def all_reduce(self, x: Tensor) -> Tensor:
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        return x

    def reduce_scatter(self, x: Tensor) -> Tensor:
        return x

    def all_to_all(self, x: Tensor, send_rows: list[int], receive_rows: list[int]) -> Tensor:
        assert send_rows == receive_rows == [x.shape[0]], "one rank sends all its rows to itself"
        return x

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        assert source == 0, f"rank {source} of one"
        return x

    def barrier(self) -> None:
        """One rank waits for nobody."""
