"""What a model keeps between steps, as data, and the seam through which a plugin adds cache tiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from deepinfer_core.interfaces.ops import RowFormat

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class PagedSpec:
    """A pool whose rows belong to blocks: one row for every `ratio` native tokens."""

    name: str
    format: RowFormat
    dim: int
    ratio: int = 1


@dataclass(frozen=True, slots=True)
class RingSpec:
    """Per-slot rings: for each of `layers` and each slot, `rows` rows written at position % rows.

    With `scratch`, the pool ends in one row for each row of a step: the step's own rows, before they enter the ring.
    """

    name: str
    format: RowFormat
    dim: int
    rows: int
    layers: int = 1
    scratch: bool = False


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """Everything that a model keeps. All paged pools share one block id; all rings share one slot id."""

    paged: tuple[PagedSpec, ...]
    rings: tuple[RingSpec, ...]

    def block_bytes(self, block_size: int) -> int:
        """Bytes of one block over all paged pools."""
        return sum(block_size // p.ratio * p.format.row_bytes(p.dim) for p in self.paged)

    def slot_bytes(self) -> int:
        """Bytes of one slot over all rings."""
        return sum(r.layers * r.rows * r.format.row_bytes(r.dim) for r in self.rings)


class KVConnector(Protocol):
    """A further cache tier (host memory, disk, another machine): whole blocks by their hash."""

    def lookup(self, hashes: Sequence[bytes]) -> int:
        """How many leading blocks of the chain it holds."""

    def load(self, hashes: Sequence[bytes], blocks: Sequence[int], pools: dict[str, Tensor]) -> None:
        """Copy those blocks into the pools."""

    def save(self, hashes: Sequence[bytes], blocks: Sequence[int], pools: dict[str, Tensor]) -> None:
        """Copy blocks out of the pools."""
