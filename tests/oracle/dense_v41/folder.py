"""Reading a checkpoint folder in the official format into a DenseModel, with its own decoding of the stored formats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from dense_v41.config import DenseConfig
from dense_v41.model import DenseModel
from dense_v41.quantise import Quantisation

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def load_folder(
    folder: Path, quantisation: Quantisation = Quantisation(), dtype: torch.dtype = torch.float32
) -> DenseModel:
    """Build the model of `folder` and fill in every parameter; a tensor left over or missing is a ValueError.

    Parameters are float32, or float64 when `dtype` is.
    """
    text_config = json.loads((folder / "config.json").read_text(encoding="utf-8"))["text_config"]
    config = DenseConfig.from_text_config(text_config)
    classes = None
    if config.engram_layer_ids:
        classes = torch.tensor(json.loads((folder / "engram_token_map.json").read_text(encoding="utf-8")))
    model = DenseModel(config, classes, quantisation, dtype)
    stored = _stored_tensors(folder)
    state = {name: _take(stored, name, like) for name, like in model.state_dict().items()}
    if stored:
        raise ValueError(f"{folder} has tensors that the model does not: {sorted(stored)[:5]}")
    model.load_state_dict(state)
    return model.double() if dtype == torch.float64 else model


def _stored_tensors(folder: Path) -> dict[str, Tensor]:
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))["weight_map"]
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(index.values())):
        with safe_open(folder / shard, "pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a mapping
    if tensors.keys() != index.keys():
        raise ValueError(f"{folder}: the index and the shards differ in {sorted(tensors.keys() ^ index.keys())[:5]}")
    return {name.removeprefix("model."): tensor for name, tensor in tensors.items()}


def stored_names(name: str, experts: int) -> Iterator[str]:
    """The checkpoint's names of one parameter: one, or one for each expert of a stack."""
    stack = re.fullmatch(r"(.*\.ffn\.experts)\.(w[123])", name)
    if stack:
        yield from (f"{stack[1]}.{expert}.{stack[2]}.weight" for expert in range(experts))
    else:
        yield re.sub(r"\.hc_(attn|ffn)\.", r".hc_\1_", name)


def _take(stored: dict[str, Tensor], name: str, like: Tensor) -> Tensor:
    parts = []
    for stored_name in stored_names(name, len(like)):
        if stored_name not in stored:
            raise ValueError(f"the folder has no tensor {stored_name}")
        scale = stored.pop(stored_name.removesuffix("weight") + "scale", None) if "hc_" not in stored_name else None
        parts.append(decoded(stored.pop(stored_name), scale, by_row="engram.embed" in stored_name))
    return torch.stack(parts) if ".ffn.experts." in name else parts[0]


def decoded(weight: Tensor, scale: Tensor | None, by_row: bool) -> Tensor:
    """float32 values. `by_row`: a scale for each 32 numbers of a row, as packed FP4 always has; else 32x32 tiles."""
    if scale is None:
        return weight.float()
    if weight.dtype in (torch.int8, torch.uint8):
        codes = weight.view(torch.uint8)
        nibbles = torch.stack((codes & 15, codes >> 4), -1).flatten(-2).long()
        values = torch.cat((E2M1, -E2M1))[nibbles]
        return values * scale.float().repeat_interleave(32, 1)
    factors = scale.float().repeat_interleave(32, 1)[:, : weight.shape[1]]
    if not by_row:
        factors = factors.repeat_interleave(32, 0)[: weight.shape[0]]
    return weight.float() * factors
