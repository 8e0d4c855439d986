"""Which tensors a model folder holds and in which shard: the index file and the shards' headers, compared both ways."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepinfer_core.api.errors import CheckpointError
from deepinfer_core.loading.faults import Faults
from deepinfer_core.loading.headers import TensorEntry, read_header

INDEX_NAME = "model.safetensors.index.json"
PREFIX = "model."  # some writers put it before every name
ADVICE = "Fetch the named files again, or write the checkpoint anew."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors of a folder by name, without the optional `model.` prefix. Every extent was checked."""

    folder: Path
    tensors: Mapping[str, TensorEntry]


def open_checkpoint(folder: Path) -> Checkpoint:
    """Read the index and every header; no tensor. Raises `CheckpointError` listing all that is wrong."""
    faults = Faults(f"the weights in {folder}")
    index = folder / INDEX_NAME
    if index.is_file():
        weight_map = _weight_map(index, faults)
        shards = _present(folder, sorted(set(weight_map.values())), faults)
    else:
        weight_map, shards = None, [_single_shard(folder)]
    found: dict[str, TensorEntry] = {}
    for shard in shards:
        header = _header(shard, faults)
        if weight_map is not None:
            _compare(weight_map, shard.name, header, faults)
        for name, entry in header.items():
            _add(found, name, entry, faults)
    faults.raise_any(ADVICE)
    return Checkpoint(folder, found)


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises `CheckpointError` naming the file when there is none or it is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}. A model folder must have it.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}. {ADVICE}") from error


def _single_shard(folder: Path) -> Path:
    shards = sorted(folder.glob("*.safetensors"))
    if len(shards) == 1:
        return shards[0]
    if not shards:
        raise CheckpointError(f"{folder} has no weights: give a folder with *.safetensors files")
    raise CheckpointError(f"{folder} has {len(shards)} safetensors files and no {INDEX_NAME} that says what is in each")


def _weight_map(index: Path, faults: Faults) -> dict[str, str]:
    content = read_json(index)
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise CheckpointError(f"{index} has no weight_map from tensor names to file names. {ADVICE}")
    if not weight_map:
        faults.add(f"{index.name}: its weight_map is empty")
    return weight_map


def _present(folder: Path, names: list[str], faults: Faults) -> list[Path]:
    shards = []
    for name in names:
        if Path(name).name != name:
            faults.add(f"{INDEX_NAME}: {name!r} is not the name of a file in the folder")
        elif not _is_file(folder / name):
            faults.add(f"{INDEX_NAME}: the file {name:.120} is missing")
        else:
            shards.append(folder / name)
    return shards


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file system takes, or a folder that may not be looked into
        return False


def _header(shard: Path, faults: Faults) -> dict[str, TensorEntry]:
    try:
        return read_header(shard, faults)
    except OSError as error:
        faults.add(f"{shard.name} cannot be read: {error.strerror}")
        return {}


def _compare(weight_map: Mapping[str, str], shard: str, header: Mapping[str, TensorEntry], faults: Faults) -> None:
    listed = {name for name, where in weight_map.items() if where == shard}
    for name in sorted(listed - header.keys()):
        faults.add(f"{shard}: {name} is missing, though the index says that it is there")
    for name in sorted(header.keys() - listed):
        where = weight_map.get(name)
        faults.add(f"{shard}: it has {name}, which the index {f'puts in {where}' if where else 'does not list'}")


def _add(found: dict[str, TensorEntry], name: str, entry: TensorEntry, faults: Faults) -> None:
    plain = name.removeprefix(PREFIX)
    if plain in found:
        other = found[plain]
        faults.add(f"{entry.shard.name}: {name} is a second {plain} (the first is {other.name} in {other.shard.name})")
    found[plain] = entry
