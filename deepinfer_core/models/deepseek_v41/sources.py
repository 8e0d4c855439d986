"""The two readers of the model's description: one notes what the tensors must be, the other loads them."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import Weight, WeightFormat
from deepinfer_core.loading.expect import TensorSpec
from deepinfer_core.loading.index import Checkpoint
from deepinfer_core.loading.mapped import map_tensor
from deepinfer_core.loading.reader import CheckpointReader, refuse_nan

BLOCK = 32  # numbers that share a scale


class SpecSource:
    """Collects a `TensorSpec` for every tensor asked for. The tensors that it returns are empty: a shape may be absurd
    until it is compared with the checkpoint's."""

    def __init__(self) -> None:
        self.specs: list[TensorSpec] = []

    def norm(self, name: str, *shape: int) -> Tensor:
        return self._note(name, shape, "BF16", "F32")

    def vector(self, name: str, *shape: int) -> Tensor:
        return self._note(name, shape, "F32")

    def matrix(self, name: str, out_features: int, in_features: int) -> Weight:
        return Weight(self._note(f"{name}.weight", (out_features, in_features), "BF16"), WeightFormat.BF16)

    def quantised(self, name: str, out_features: int, in_features: int) -> Weight:
        data = self._note(f"{name}.weight", (out_features, in_features), "F8_E4M3")
        scale = self._note(f"{name}.scale", (_blocks(out_features), _blocks(in_features)), "F8_E8M0")
        return Weight(data, WeightFormat.FP8, scale)

    def experts(self, prefix: str, part: str, count: int, out_features: int, in_features: int) -> Weight:
        data = scale = torch.empty(0, device="meta")
        for expert in range(count):
            name = f"{prefix}.{expert}.{part}"
            data = self._note(f"{name}.weight", (out_features, in_features // 2), "I8", "U8")
            scale = self._note(f"{name}.scale", (out_features, in_features // BLOCK), "F8_E8M0")
        return Weight(data, WeightFormat.FP4, scale)

    def table(self, name: str, rows: int, dim: int) -> Weight:
        data = self._note(f"{name}.weight", (rows, dim), "F8_E4M3")
        return Weight(data, WeightFormat.FP8, self._note(f"{name}.scale", (rows, dim // BLOCK), "F8_E8M0"))

    def unused(self, name: str, *shape: int) -> None:
        self._note(name, shape, "F32")

    def _note(self, name: str, shape: tuple[int, ...], *dtypes: str) -> Tensor:
        self.specs.append(TensorSpec(name, shape, dtypes))
        return torch.empty(0, device="meta")


class LoadingSource:
    """Reads each tensor asked for into the memory that it will stay in: matrices as stored, multipliers in float32."""

    def __init__(self, checkpoint: Checkpoint, reader: CheckpointReader, device: torch.device) -> None:
        self._checkpoint = checkpoint
        self._reader = reader
        self._device = device

    def norm(self, name: str, *shape: int) -> Tensor:
        return self._reader.read(name).float()

    def vector(self, name: str, *shape: int) -> Tensor:
        return self._reader.read(name)

    def matrix(self, name: str, out_features: int, in_features: int) -> Weight:
        return Weight(self._reader.read(f"{name}.weight"), WeightFormat.BF16)

    def quantised(self, name: str, out_features: int, in_features: int) -> Weight:
        return Weight(self._reader.read(f"{name}.weight"), WeightFormat.FP8, self._reader.read(f"{name}.scale"))

    def experts(self, prefix: str, part: str, count: int, out_features: int, in_features: int) -> Weight:
        data = self._stack(count, out_features, in_features // 2)
        scale = self._stack(count, out_features, in_features // BLOCK)
        for expert in range(count):
            self._reader.read_into(f"{prefix}.{expert}.{part}.weight", data[expert])
            self._reader.read_into(f"{prefix}.{expert}.{part}.scale", scale[expert])
        return Weight(data, WeightFormat.FP4, scale)

    def table(self, name: str, rows: int, dim: int) -> Weight:
        entry = self._checkpoint.tensors[f"{name}.scale"]
        scale = map_tensor(entry)
        refuse_nan(entry, scale)
        return Weight(map_tensor(self._checkpoint.tensors[f"{name}.weight"]), WeightFormat.FP8, scale)

    def unused(self, name: str, *shape: int) -> None:
        """Its header was checked; its numbers are not wanted."""

    def _stack(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.uint8, device=self._device)


def _blocks(features: int) -> int:
    return -(-features // BLOCK)
