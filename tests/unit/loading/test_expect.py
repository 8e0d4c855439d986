import pytest
import torch
from safetensors.torch import save_file

from deepinfer_core.api.errors import CheckpointError
from deepinfer_core.loading.expect import TensorSpec, compare_tensors
from deepinfer_core.loading.index import open_checkpoint

SPECS = [
    TensorSpec("embed.weight", (4, 2), ("BF16",)),
    TensorSpec("norm.weight", (2,), ("BF16", "F32")),
    TensorSpec("bias", (3,), ("F32",)),
]


def compare(tmp_path, **changes):
    tensors = {
        "embed.weight": torch.zeros(4, 2, dtype=torch.bfloat16),
        "norm.weight": torch.zeros(2),
        "bias": torch.zeros(3),
        **changes,
    }
    save_file({name: value for name, value in tensors.items() if value is not None}, tmp_path / "model.safetensors")
    compare_tensors(open_checkpoint(tmp_path), SPECS, unread=lambda name: name.startswith("vision."))


def test_what_is_expected_passes(tmp_path):
    compare(tmp_path)


def test_tensors_that_are_known_and_not_read_pass(tmp_path):
    compare(tmp_path, **{"vision.norm": torch.zeros(1)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bias": None}, "bias is missing"),
        ({"embed.weight": None, "embd.weight": torch.zeros(1)}, "embed.weight is missing; did you mean 'embd.weight'?"),
        ({"stray": torch.zeros(1)}, "stray is extra"),
        ({"bias": torch.zeros(4)}, "bias has shape [4] and must have [3]"),
        ({"bias": torch.zeros(3, dtype=torch.float16)}, "bias has dtype F16 and must have F32"),
        ({"norm.weight": torch.zeros(2, dtype=torch.int8)}, "norm.weight has dtype I8 and must have BF16 or F32"),
    ],
)
def test_each_fault_is_named(tmp_path, changes, message):
    with pytest.raises(CheckpointError) as error:
        compare(tmp_path, **changes)
    assert message in str(error.value)


def test_all_faults_come_in_one_error(tmp_path):
    wrong = {"bias": torch.zeros(4, dtype=torch.int8), "norm.weight": None, "stray": torch.zeros(1)}
    with pytest.raises(CheckpointError, match="4 faults") as error:
        compare(tmp_path, **wrong)
    for part in ("shape [4]", "dtype I8", "norm.weight is missing", "stray is extra"):
        assert part in str(error.value)
