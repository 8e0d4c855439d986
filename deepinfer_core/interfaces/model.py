"""The model's contract: what the engine gives a model for one step, and what it gets back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from deepinfer_core.interfaces.cache import CacheSpec
from deepinfer_core.interfaces.ops import Rows, WeightFormat

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from deepinfer_core.interfaces.parallel import Communicator, ExpertPlacement
    from deepinfer_core.ops.table import OpTable


@dataclass(frozen=True, slots=True)
class StepInput:
    """One step on the device. `rows` are all T rows; `kept_rows` the K of them that run the decoder half."""

    tokens: Tensor  # int64 [T]
    rows: Rows
    kept: Tensor  # int64 [K] indices into the T rows, ascending, none twice
    kept_rows: Rows
    logit_rows: Tensor  # int64 [N] indices into the K kept rows
    block_table: Tensor  # int32 [slots, max blocks]
    history: Tensor  # int64 [slots, history rows]: the token of position p at p % history rows, before this step
    write_start: Tensor  # int32 [T] rows at positions below it write no paged pool: others share those blocks
    max_end: int  # upper bound on position + 1 over all rows


@dataclass(frozen=True, slots=True)
class CachePools:
    """The tensors behind a CacheSpec, by name. A ring pool is [layers * slots * rows (+ scratch), row bytes]."""

    paged: Mapping[str, Tensor]
    rings: Mapping[str, Tensor]
    slots: int
    block_size: int


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The engine options that change what a model computes."""

    dtype: torch.dtype
    activation_quant: bool  # quantise activations and caches as the checkpoint's format defines


@dataclass(frozen=True, slots=True)
class ModelContext:
    """What a model is built on."""

    ops: OpTable
    device: torch.device
    expert_communicator: Communicator
    placement: ExpertPlacement
    options: ModelOptions


@dataclass(frozen=True, slots=True)
class WindowReach:
    """Rows before a row that what it computes depends on through sliding windows, layer upon layer."""

    keys: int  # for what it writes to paged pools
    kept: int  # for its state where the decoder half begins, and the window keys that are looked at there
    logits: int  # for its logits


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the engine must know of a checkpoint before and after loading it."""

    architecture: str
    vocab_size: int  # rows of the head
    max_length: int  # positions the model was trained for
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    image_token_id: int | None
    history_rows: int  # tokens of the past that the model asks for (n-gram hashes); 0 when none
    decoder_rows: int  # prompt rows that bounded prefill keeps; 0 when the model has no decoder half to bound
    max_drafts: int  # drafts a step the checkpoint's draft stages can make; 0 when there are none
    stored_bytes: int
    reach: WindowReach | None = None  # None: prefixes of this model cannot be cached
    num_experts: int = 0  # routed experts of a layer; 0 when there are none to place
    weight_formats: tuple[WeightFormat, ...] = ()  # formats that the device must have matrices in


class Model(Protocol):
    """A loaded model. `forward` runs on the queue's thread and must not wait for the host."""

    @property
    def info(self) -> ModelInfo: ...

    def cache_spec(self) -> CacheSpec: ...

    def forward(self, step: StepInput, pools: CachePools) -> Tensor:
        """Run a step: write the caches of its rows and return float32 logits [N, vocab_size]."""


class ModelFactory(Protocol):
    """Registered under the `architectures` names that it answers to."""

    def inspect(self, folder: Path, config: Mapping[str, Any]) -> ModelInfo:
        """Check config and tensor headers; raise a named error before anything is read. Loads nothing."""

    def cache_spec(self, config: Mapping[str, Any], options: ModelOptions) -> CacheSpec:
        """What the loaded model's own `cache_spec` will be."""

    def load(self, folder: Path, config: Mapping[str, Any], context: ModelContext) -> Model: ...
