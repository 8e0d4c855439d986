import pytest
import torch
from made_checkpoints import INDEX, tiny_tensors, write_folder
from safetensors.torch import save_file

from deepinfer_core.api.errors import CheckpointError
from deepinfer_core.loading import reader as reader_room
from deepinfer_core.loading.index import open_checkpoint
from deepinfer_core.loading.mapped import map_tensor
from deepinfer_core.loading.reader import CheckpointReader

CPU = torch.device("cpu")


def as_bytes(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8)


def read_one(folder, tensor):
    save_file({"x": tensor}, folder / "model.safetensors")
    with CheckpointReader(open_checkpoint(folder), CPU) as reader:
        return reader.read("x")


def test_every_tensor_is_read_bit_for_bit(tmp_path):
    tensors = tiny_tensors()
    checkpoint = open_checkpoint(write_folder(tmp_path / "tiny", tensors, shards=3))
    assert (checkpoint.folder / INDEX).is_file()
    with CheckpointReader(checkpoint, CPU) as reader:
        for name, expected in tensors.items():
            found = reader.read(name)
            assert found.shape == expected.shape
            assert torch.equal(as_bytes(found), as_bytes(expected)), name


def test_one_shard_is_open_at_a_time_and_none_afterwards(tmp_path, monkeypatch):
    files = []

    class Counted(reader_room.FileIO):
        def __init__(self, path):
            super().__init__(path)
            assert all(file.closed for file in files)
            files.append(self)

    monkeypatch.setattr(reader_room, "FileIO", Counted)
    tensors = tiny_tensors()
    checkpoint = open_checkpoint(write_folder(tmp_path / "tiny", tensors, shards=4))
    with CheckpointReader(checkpoint, CPU) as reader:
        for name in sorted(tensors):
            reader.read(name)
    assert len(files) == 4
    assert all(file.closed for file in files)


def test_scales_and_packed_pairs_are_bytes(tmp_path):
    assert read_one(tmp_path, torch.full((2,), 127, dtype=torch.uint8).view(torch.float8_e8m0fnu)).tolist() == [127] * 2
    assert read_one(tmp_path, torch.tensor([-1, 127], dtype=torch.int8)).tolist() == [255, 127]


def test_part_of_a_stack_is_filled(tmp_path):
    save_file({"x": torch.arange(6.0).view(2, 3)}, tmp_path / "model.safetensors")
    stack = torch.zeros(3, 2, 3)
    with CheckpointReader(open_checkpoint(tmp_path), CPU) as reader:
        reader.read_into("x", stack[1])
    assert stack.flatten().tolist() == [0.0] * 6 + [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] + [0.0] * 6


@pytest.mark.parametrize("shape", [(0,), (0, 5)])
def test_an_empty_tensor(tmp_path, shape):
    assert read_one(tmp_path, torch.zeros(shape)).shape == shape


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        (0xFF, torch.float8_e8m0fnu),
        (0x7F, torch.float8_e4m3fn),
        (0xFF, torch.float8_e4m3fn),
    ],
)
def test_a_byte_that_is_no_number_is_refused(tmp_path, code, dtype):
    stored = torch.full((70,), 60, dtype=torch.uint8)
    assert read_one(tmp_path, stored.view(dtype)).numel() == 70
    stored[69] = code
    with pytest.raises(CheckpointError, match=r"x \(F8_.*not numbers"):
        read_one(tmp_path, stored.view(dtype))


def test_every_other_scale_is_a_number(tmp_path):
    codes = torch.arange(255, dtype=torch.uint8)
    assert torch.equal(read_one(tmp_path, codes.view(torch.float8_e8m0fnu)), codes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_float_that_is_no_number_is_refused(tmp_path, dtype):
    with pytest.raises(CheckpointError, match="not numbers"):
        read_one(tmp_path, torch.tensor([1.0, float("nan")], dtype=dtype))


def test_the_last_chunk_is_checked_too(tmp_path, monkeypatch):
    monkeypatch.setattr("deepinfer_core.loading.tensors.CHUNK", 8)
    with pytest.raises(CheckpointError, match="not numbers"):
        read_one(tmp_path, torch.tensor([1.0] * 16 + [float("nan")]))


def test_a_file_that_shrinks_while_it_is_read_is_named(tmp_path):
    save_file({"x": torch.zeros(100)}, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.truncate(checkpoint.tensors["x"].end - 1)
    with pytest.raises(CheckpointError, match="ended within x"), CheckpointReader(checkpoint, CPU) as reader:
        reader.read("x")


def test_a_file_that_is_gone_is_named(tmp_path):
    save_file({"x": torch.zeros(100)}, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with (
        pytest.raises(CheckpointError, match=r"model.safetensors cannot be read: No such file"),
        CheckpointReader(checkpoint, CPU) as reader,
    ):
        reader.read("x")


@pytest.mark.parametrize("shape", [(7, 32), (0, 32)])
def test_a_mapped_table_equals_the_stored_one(tmp_path, shape):
    stored = torch.randint(0, 127, shape, dtype=torch.uint8).view(torch.float8_e4m3fn)
    save_file({"before": torch.zeros(3, dtype=torch.uint8), "x": stored}, tmp_path / "model.safetensors")
    mapped = map_tensor(open_checkpoint(tmp_path).tensors["x"])
    assert mapped.dtype == stored.dtype
    assert mapped.shape == stored.shape
    assert torch.equal(as_bytes(mapped), as_bytes(stored))
