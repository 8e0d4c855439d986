"""Where experts live when nothing is replicated or moved. Balanced placements come with the load balancer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class IdentityPlacement:
    """One replica of each expert, in order: the physical id is the logical id."""

    def __init__(self, num_experts: int) -> None:
        self._num_experts = num_experts

    @property
    def num_physical(self) -> int:
        return self._num_experts

    def to_physical(self, layer: int, experts: Tensor) -> Tensor:
        return experts
