import json

import pytest
import torch
from made_checkpoints import INDEX, shard_name, write_index
from safetensors.torch import save_file

from deepinfer_core.api.errors import CheckpointError
from deepinfer_core.loading.faults import MAX_LISTED
from deepinfer_core.loading.index import open_checkpoint, read_json

FIRST, SECOND = shard_name(0, 2), shard_name(1, 2)


def tensor(value=1.0):
    return torch.tensor([value])


@pytest.fixture
def two_shards(tmp_path):
    save_file({"a": tensor(), "b": tensor()}, tmp_path / FIRST)
    save_file({"c": tensor()}, tmp_path / SECOND)
    write_index(tmp_path, {"a": FIRST, "b": FIRST, "c": SECOND})
    return tmp_path


def test_a_single_file_needs_no_index(tmp_path):
    save_file({"a": tensor()}, tmp_path / "weights.safetensors")
    assert open_checkpoint(tmp_path).tensors["a"].shard.name == "weights.safetensors"


def test_shards_are_found_through_the_index(two_shards):
    found = open_checkpoint(two_shards).tensors
    assert {name: entry.shard.name for name, entry in found.items()} == {"a": FIRST, "b": FIRST, "c": SECOND}


def test_a_file_that_the_index_does_not_name_is_left_alone(two_shards):
    (two_shards / "other.safetensors").write_bytes(b"not a shard")
    assert open_checkpoint(two_shards).tensors.keys() == {"a", "b", "c"}


def test_the_prefix_is_optional(tmp_path):
    save_file({"model.a": tensor(), "head.weight": tensor()}, tmp_path / "model.safetensors")
    assert open_checkpoint(tmp_path).tensors.keys() == {"a", "head.weight"}


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": FIRST, "c": SECOND}, f"{FIRST}: it has b, which the index does not list"),
        ({"a": FIRST, "b": SECOND, "c": SECOND}, f"{SECOND}: b is missing, though the index says that it is there"),
        ({"a": FIRST, "b": SECOND, "c": SECOND}, f"{FIRST}: it has b, which the index puts in {SECOND}"),
        ({"a": FIRST, "b": FIRST, "c": SECOND, "d": SECOND}, f"{SECOND}: d is missing"),
        ({"a": FIRST, "b": FIRST, "c": "gone.safetensors"}, "the file gone.safetensors is missing"),
        ({"a": "../secret.safetensors"}, "'../secret.safetensors' is not the name of a file in the folder"),
        ({}, "weight_map is empty"),
    ],
)
def test_index_and_headers_are_compared_both_ways(two_shards, weight_map, message):
    write_index(two_shards, weight_map)
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(two_shards)
    assert message in str(error.value)


def test_a_tensor_in_two_shards_is_refused(two_shards):
    save_file({"c": tensor(), "a": tensor()}, two_shards / SECOND)
    with pytest.raises(CheckpointError, match="a is a second a"):
        open_checkpoint(two_shards)


def test_a_tensor_with_and_without_prefix_is_refused(tmp_path):
    save_file({"model.a": tensor(), "a": tensor()}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="is a second a"):
        open_checkpoint(tmp_path)


def test_faults_of_several_shards_come_in_one_error(two_shards):
    for name in (FIRST, SECOND):
        (two_shards / name).write_bytes((two_shards / name).read_bytes()[:-1])
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(two_shards)
    assert f"{FIRST}: the file is cut off" in str(error.value)
    assert f"{SECOND}: the file is cut off" in str(error.value)
    assert "2 faults" in str(error.value)


def test_a_long_list_is_capped(tmp_path):
    save_file({"a": tensor()}, tmp_path / FIRST)
    write_index(tmp_path, {"a": FIRST, **{f"t{i:03d}": FIRST for i in range(100)}})
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(tmp_path)
    assert "100 faults" in str(error.value)
    assert f"... and {100 - MAX_LISTED} more" in str(error.value)


@pytest.mark.parametrize("content", ["{", "[1]", '{"weight_map": ["a"]}', '{"weight_map": {"a": 1}}', "{}"])
def test_an_index_of_another_shape_is_refused(tmp_path, content):
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(CheckpointError, match=INDEX):
        open_checkpoint(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="has no weights"):
        open_checkpoint(tmp_path)


def test_a_shard_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(CheckpointError, match=r"model.safetensors cannot be read: Is a directory"):
        open_checkpoint(tmp_path)


def test_several_files_need_an_index(two_shards):
    (two_shards / INDEX).unlink()
    with pytest.raises(CheckpointError, match=f"2 safetensors files and no {INDEX}"):
        open_checkpoint(two_shards)


def test_json_that_is_missing_or_broken_is_named(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(CheckpointError, match=r"config.json cannot be read: No such file"):
        read_json(path)
    path.write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match=r"config.json is not JSON"):
        read_json(path)
    path.write_text(json.dumps({"a": 1}))
    assert read_json(path) == {"a": 1}


def test_a_shard_whose_name_no_file_system_takes_is_missing(tmp_path):
    write_index(tmp_path, {"a": "a" * 5000})
    with pytest.raises(CheckpointError, match="the file a+ is missing"):
        open_checkpoint(tmp_path)
