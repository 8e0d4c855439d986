"""Model folders for tests: copies of the tiny checkpoint with some of its tensors or settings changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

TINY = Path(__file__).parent / "data" / "tiny_v41"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def tiny_config() -> dict:
    return json.loads((TINY / "config.json").read_text())


def tiny_tensors() -> dict[str, Tensor]:
    return load_file(TINY / WEIGHTS)


def write_folder(folder: Path, tensors: Mapping[str, Tensor], config: Mapping | None = None, shards: int = 1) -> Path:
    """A folder with these tensors spread over `shards` files, with an index when there are several."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny_config() if config is None else config))
    shutil.copy(TINY / "engram_token_map.json", folder)
    names = sorted(tensors)
    if shards == 1:
        save_file(dict(tensors), folder / WEIGHTS)
        return folder
    where = {name: shard_name(index * shards // len(names), shards) for index, name in enumerate(names)}
    for shard in set(where.values()):
        save_file({name: tensors[name] for name in names if where[name] == shard}, folder / shard)
    write_index(folder, where)
    return folder


def shard_name(index: int, shards: int) -> str:
    return f"model-{index + 1:05d}-of-{shards:05d}.safetensors"


def write_index(folder: Path, weight_map: Mapping[str, str]) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": dict(weight_map)}))


def write_zeros(path: Path, shapes: Sequence[tuple[str, str, tuple[int, ...]]], item_bytes: Mapping[str, int]) -> int:
    """A shard of zeros for (name, dtype, shape), which takes no room on most disks; returns its bytes of data."""
    header, offset = {}, 0
    for name, dtype, shape in shapes:
        count = item_bytes[dtype]
        for size in shape:
            count *= size
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + count]}
        offset += count
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)
    return offset
