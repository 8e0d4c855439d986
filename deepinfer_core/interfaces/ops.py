"""The vocabulary that ops, models and kernels share: weights, cache row formats, row metadata and op specifications.

Only data and protocols live here. The reference of each op is in `deepinfer_core/ops/`, one file per family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class WeightFormat(Enum):
    """How a matrix is stored. `Weight.data` and `Weight.scale` have the shapes given here for a logical [out, in]."""

    F32 = "f32"  # data [out, in] float32, no scale
    BF16 = "bf16"  # data [out, in] bfloat16, no scale
    # data [out, in] float8_e4m3fn, scale [ceil(out/32), ceil(in/32)] uint8 (E8M0 bytes); a table that `engram_lookup`
    # reads has a scale for each 32 numbers of a row instead: [out, in/32]
    FP8 = "fp8"
    FP4 = "fp4"  # data [out, in/2] uint8, two E2M1 a byte, low nibble first; scale [out, in/32] uint8 (E8M0 bytes)


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix in its stored format. A stack of E expert matrices has one leading dimension more on both tensors."""

    data: Tensor
    format: WeightFormat
    scale: Tensor | None = None

    @property
    def out_features(self) -> int:
        return int(self.data.shape[-2])

    @property
    def in_features(self) -> int:
        return int(self.data.shape[-1]) * (2 if self.format is WeightFormat.FP4 else 1)


class RowFormat(Enum):
    """How one cached vector of `dim` numbers is laid out in the bytes of a pool row: the data, then the scales."""

    F32 = "f32"  # 4 * dim bytes
    BF16 = "bf16"  # 2 * dim bytes
    FP8_E8M0_32 = "fp8_e8m0_32"  # dim E4M3 bytes, then dim/32 E8M0 bytes: sliding-window rows
    FP4_E4M3_16 = "fp4_e4m3_16"  # dim/2 bytes of E2M1 pairs, then dim/16 E4M3 bytes: compressed latents
    FP4_E8M0_32 = "fp4_e8m0_32"  # dim/2 bytes of E2M1 pairs, then dim/32 E8M0 bytes: index keys

    def row_bytes(self, dim: int) -> int:
        """Bytes of one stored vector of `dim` numbers."""
        return {
            RowFormat.F32: 4 * dim,
            RowFormat.BF16: 2 * dim,
            RowFormat.FP8_E8M0_32: dim + dim // 32,
            RowFormat.FP4_E4M3_16: dim // 2 + dim // 16,
            RowFormat.FP4_E8M0_32: dim // 2 + dim // 32,
        }[self]


@dataclass(frozen=True, slots=True)
class Rows:
    """Where each of a step's T rows stands. Every field is an int32 tensor [T] on the device.

    A request's rows in one step are consecutive, in order of position. A padding row has slot -1: kernels read and
    write no cache for it and its results are never looked at.
    """

    slot: Tensor  # the request's slot; indexes every per-slot table
    position: Tensor  # absolute position of the row's token in its sequence
    first_position: Tensor  # position of the request's first row in this step
    first_row: Tensor  # index, within these T rows, of the request's first row
    last_position: Tensor  # position of the request's last row in this step
    floor: Tensor  # lowest position that the row's sliding window may look at

    def __len__(self) -> int:
        return int(self.slot.shape[0])

    def take(self, index: Tensor) -> Rows:
        """Some of the rows. `first_row` still counts within the rows that they were taken from."""
        return Rows(*(getattr(self, name)[index] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class WindowView:
    """One layer's sliding-window keys: a ring for each slot, and the rows of the step in flight.

    The key of position p of a row's request is `fresh_base + first_row + (p - first_position)` when
    p >= first_position, and `base + slot * ring_rows + p % ring_rows` otherwise. Visible to a row at position t are the
    positions max(floor, t - window + 1) .. t.
    """

    pool: Tensor  # uint8 [pool rows, row bytes]
    format: RowFormat
    base: int  # first pool row of this layer's rings
    fresh_base: int  # first pool row of the step's scratch
    ring_rows: int
    window: int


@dataclass(frozen=True, slots=True)
class PagedView:
    """Compressed entries of one KV source, in blocks. Entry j of a request is pool row
    `block_table[slot, j // block_rows] * block_rows + j % block_rows`; it covers positions j*ratio .. (j+1)*ratio-1."""

    pool: Tensor  # uint8 [blocks * block_rows, row bytes]
    format: RowFormat
    block_table: Tensor  # int32 [slots, max blocks]
    block_rows: int  # entries a block: block_size // ratio
    ratio: int


Kernel = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a kernel may differ from the reference by: |x - ref| <= absolute + relative * |ref|, for one dtype."""

    absolute: float
    relative: float


@dataclass(frozen=True, slots=True)
class OpCase:
    """One set of inputs for an op: a name for reports, positional and keyword arguments."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


class CaseMaker(Protocol):
    """Yields the cases of an op on a device, from a seed; always includes zero rows and one odd size."""

    def __call__(self, device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[OpCase]: ...


@dataclass(frozen=True, slots=True)
class OpSpec:
    """An op as data. The reference is plain torch and defines the meaning; its signature is the kernel's signature."""

    name: str
    family: str
    reference: Kernel
    cases: CaseMaker
    tolerances: Mapping[str, Tolerance]  # keyed by dtype name: "float32", "bfloat16"
    notes: str = ""
    mutates: tuple[str, ...] = ()  # parameters that the op writes in place
