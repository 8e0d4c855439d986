"""Writing a checkpoint folder in the official V4.1 format: config.json, safetensors shards and their index."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from deepinfer_demo_model.formats import encode_fp4, encode_fp8_rows, encode_fp8_tiles
from deepinfer_demo_model.layout import Stored, TensorPlan, checkpoint_tensors
from deepinfer_demo_model.spec import ModelSpec

TOKEN_MAP_FILE = "engram_token_map.json"
ENCODERS = {Stored.FP8_TILES: encode_fp8_tiles, Stored.FP8_ROWS: encode_fp8_rows, Stored.FP4: encode_fp4}


def write_random_checkpoint(
    folder: Path, spec: ModelSpec, token_classes: Sequence[int], seed: int = 0, shards: int = 1, prefix: str = ""
) -> None:
    """Write a random model of this shape. A tensor's values depend on seed, name and shape alone.

    `token_classes` is the Engram token map, one class for each token id; it is not written for a model without Engram.
    """
    tensors: dict[str, Tensor] = {}
    for plan in checkpoint_tensors(spec):
        tensors |= stored_tensors(plan.name, _draw(plan, seed), plan.stored)
    write_checkpoint(folder, spec.config(), tensors, shards, prefix)
    if spec.engram_layer_ids:
        _write_json(folder / TOKEN_MAP_FILE, list(token_classes))


def stored_tensors(name: str, values: Tensor, stored: Stored) -> dict[str, Tensor]:
    """The tensor under its name in its stored format, with its scales beside it where the format has them."""
    if stored is Stored.BF16:
        return {name: values.to(torch.bfloat16)}
    if stored is Stored.F32:
        return {name: values.float()}
    data, scale = ENCODERS[stored](values)
    return {name: data, f"{name.removesuffix('weight')}scale": scale}


def write_checkpoint(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], shards: int = 1, prefix: str = ""
) -> None:
    """Write config.json and the tensors, dealt over `shards` files in their order, each name behind `prefix`."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", config)
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors" if shards > 1 else "model.safetensors"
        part = names[shard * len(names) // shards : (shard + 1) * len(names) // shards]
        save_file({prefix + name: tensors[name].contiguous() for name in part}, folder / file, {"format": "pt"})
        weight_map |= dict.fromkeys((prefix + name for name in part), file)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})


def _draw(plan: TensorPlan, seed: int) -> Tensor:
    digest = hashlib.blake2b(f"{seed} {plan.name}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    return plan.mean + plan.deviation * torch.randn(plan.shape, generator=generator)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
