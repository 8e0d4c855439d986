"""How ranks are arranged, as data: which rank takes part in which group. Nothing here talks to another rank."""

from __future__ import annotations

from dataclasses import dataclass

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.interfaces.parallel import Group


@dataclass(frozen=True, slots=True)
class Topology:
    """dp * cp ranks: attention is data-parallel over `dp` groups of `cp` ranks, experts spread over runs of `ep` ranks.

    Rank r has context-parallel index r % cp. There is no tensor or pipeline parallelism. Raises `ConfigError` for sizes
    that do not fit together.
    """

    dp: int = 1
    cp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        for name in ("dp", "cp", "ep"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)} is not allowed: give a whole number of at least 1")
        if self.world_size % self.ep:
            raise ConfigError(f"ep = {self.ep} is not allowed: it must divide dp * cp = {self.world_size}")

    @property
    def world_size(self) -> int:
        return self.dp * self.cp

    def group(self, name: str, rank: int) -> Group:
        """The group called `name` ("dp", "cp", "ep" or "world") that `rank` belongs to, seen from that rank."""
        assert 0 <= rank < self.world_size, f"rank {rank} of {self.world_size}"
        ranks = {
            "world": range(self.world_size),
            "dp": range(rank % self.cp, self.world_size, self.cp),
            "cp": range(rank - rank % self.cp, rank - rank % self.cp + self.cp),
            "ep": range(rank - rank % self.ep, rank - rank % self.ep + self.ep),
        }[name]
        return Group(name, tuple(ranks), ranks.index(rank))
