"""What the checkpoint writer stores, read by the dense implementation: its encodings and its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from dense_v41 import load_folder, quantise
from dense_v41.folder import decoded
from hypothesis import given
from hypothesis import strategies as st
from layer_maps import SPECS
from torch import Tensor

from deepinfer_demo_model.checkpoint import stored_tensors, write_random_checkpoint
from deepinfer_demo_model.layout import Stored

ROUNDING = {Stored.FP8_TILES: quantise.fp8_matrix, Stored.FP8_ROWS: quantise.fp8, Stored.FP4: quantise.fp4}
SPEC = SPECS["engram in both halves"]
CLASSES = [token // 2 for token in range(SPEC.vocab_size)]

formats = st.sampled_from(list(ROUNDING))
seeds = st.integers(0, 2**32 - 1)


def stored_and_read(values: Tensor, stored: Stored) -> Tensor:
    parts = stored_tensors("x.weight", values, stored)
    return decoded(parts["x.weight"], parts["x.scale"], by_row=stored is Stored.FP8_ROWS)


def drawn(rows: int, columns: int, exponent: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 2.0**exponent


@given(formats, st.integers(1, 70), st.integers(1, 3), st.integers(-20, 20), seeds)
def test_stored_is_what_training_rounds_to(stored, rows, blocks, exponent, seed):
    """So a model trained with rounded weights is the model that its checkpoint holds."""
    values = drawn(rows, 32 * blocks, exponent, seed)
    assert torch.equal(stored_and_read(values, stored), ROUNDING[stored](values))


@given(formats, st.integers(-8, 8), seeds)
def test_stored_values_are_stored_as_they_are(stored, exponent, seed):
    values = stored_and_read(drawn(40, 64, exponent, seed), stored)
    assert torch.equal(stored_and_read(values, stored), values)


@given(st.integers(1, 70), st.integers(1, 70), seeds)
def test_fp8_tiles_may_be_cut_at_the_edges(rows, columns, seed):
    """Each value is within half a step of E4M3, which has four significant bits, and the tile's smallest step."""
    values = drawn(rows, columns, 0, seed)
    bound = values.abs() / 16 + values.abs().max() / 448 * 2.0**-9
    assert ((stored_and_read(values, Stored.FP8_TILES) - values).abs() <= bound).all()


def test_fp4_ties_go_to_the_even_code():
    values = torch.zeros(1, 32)
    values[0, :10] = torch.tensor([6.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.75, -5.0])
    expected = [6.0, 0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, -1.0, -4.0]
    assert stored_and_read(values, Stored.FP4)[0, :10].tolist() == expected


@pytest.mark.parametrize("stored", list(ROUNDING))
def test_zeros_stay_zeros(stored):
    zeros = torch.zeros(32, 32)
    assert torch.equal(stored_and_read(zeros, stored), zeros)


def test_shards_and_prefix_change_no_number(tmp_path: Path):
    write_random_checkpoint(tmp_path / "one", SPEC, CLASSES)
    write_random_checkpoint(tmp_path / "four", SPEC, CLASSES, shards=4, prefix="model.")
    assert len(list((tmp_path / "four").glob("*.safetensors"))) == 4
    one, four = (load_folder(tmp_path / name).state_dict() for name in ("one", "four"))
    assert one.keys() == four.keys()
    assert all(torch.equal(one[name], four[name]) for name in one)


def test_seed_and_name_decide_the_numbers(tmp_path: Path):
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        write_random_checkpoint(tmp_path / name, SPEC, CLASSES, seed=seed)
    first, again, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "again", "other"))
    assert first == again
    assert first != other


def test_index_gives_the_stored_size(tmp_path: Path):
    write_random_checkpoint(tmp_path, SPEC, CLASSES, shards=2)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    files = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    headers = 0
    for path in tmp_path.glob("*.safetensors"):
        headers += 8 + int.from_bytes(path.read_bytes()[:8], "little")
    assert index["metadata"]["total_size"] == files - headers


def test_dense_loader_refuses_what_does_not_fit(tmp_path: Path):
    write_random_checkpoint(tmp_path, SPEC, CLASSES)
    config = json.loads((tmp_path / "config.json").read_text())
    config["text_config"]["num_hidden_layers"] = 4
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"tensors that the model does not"):
        load_folder(tmp_path)
