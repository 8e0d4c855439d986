"""A folder is checked whole before anything runs: what is refused, and what may differ between releases."""

import json

import pytest
import torch
from made_checkpoints import TINY, shard_name, tiny_config, tiny_tensors, write_folder
from model_driver import Driver, load_model

from deepinfer_core.api.errors import CheckpointError
from deepinfer_core.interfaces.model import ModelInfo, WindowReach
from deepinfer_core.interfaces.ops import WeightFormat
from deepinfer_core.models.deepseek_v41.factory import DeepseekV41Factory

PROMPT = list(range(40, 60))


def inspect(folder):
    return DeepseekV41Factory().inspect(folder, json.loads((folder / "config.json").read_text()))


def refusal(check, folder):
    with pytest.raises(CheckpointError) as error:
        check(folder)
    return str(error.value)


@pytest.fixture
def tensors():
    return tiny_tensors()


@pytest.fixture(scope="module")
def expected():
    return Driver(load_model(TINY, quantise=True)).prefill(0, PROMPT, 20)


def test_what_the_engine_must_know():
    assert inspect(TINY) == ModelInfo(
        architecture="DeepseekV41ForCausalLM",
        vocab_size=512,
        max_length=4096,
        eos_token_ids=(1,),
        bos_token_id=0,
        image_token_id=510,
        history_rows=3,
        decoder_rows=28,
        max_drafts=5,
        stored_bytes=sum(t.numel() * t.element_size() for t in tiny_tensors().values()),
        reach=WindowReach(keys=5 * 15, kept=6 * 15, logits=8 * 15),
        num_experts=8,
        weight_formats=(WeightFormat.BF16, WeightFormat.FP8, WeightFormat.FP4),
    )


@pytest.mark.parametrize(
    "name",
    [
        "embed.weight",
        "layers.0.hc_attn_base",
        "layers.2.attn.compressor.wgate.weight",
        "layers.3.ffn.experts.7.w2.scale",
        "layers.1.engram.embed.scale",
        "layers.6.ffn.gate.bias_vl",
        "mtp.2.markov_head.head.weight",
    ],
)
def test_a_dropped_tensor_is_named(tmp_path, tensors, name):
    del tensors[name]
    assert f"{name} is missing" in refusal(inspect, write_folder(tmp_path / "f", tensors))


@pytest.mark.parametrize("name", ["layers.5.attn.compressor.wgate.weight", "layers.8.attn_norm.weight", "hc_head_fn"])
def test_an_extra_tensor_is_named(tmp_path, tensors, name):
    tensors[name] = torch.zeros(64, 128, dtype=torch.bfloat16)
    assert f"{name} is extra" in refusal(inspect, write_folder(tmp_path / "f", tensors))


def test_a_wrong_shape_is_named(tmp_path, tensors):
    tensors["layers.4.attn.wq_a.scale"] = tensors["layers.4.attn.wq_a.scale"][:, :2].contiguous()
    message = refusal(inspect, write_folder(tmp_path / "f", tensors))
    assert "layers.4.attn.wq_a.scale has shape [2, 2] and must have [2, 4]" in message


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("layers.0.attn.wkv.weight", torch.bfloat16),
        ("layers.0.attn.wkv.scale", torch.float32),
        ("layers.0.attn.attn_sink", torch.bfloat16),
        ("head.weight", torch.float32),
        ("layers.0.hc_ffn_fn", torch.float16),
    ],
)
def test_a_wrong_dtype_is_named(tmp_path, tensors, name, dtype):
    tensors[name] = tensors[name].to(dtype)
    assert f"{name} has dtype" in refusal(inspect, write_folder(tmp_path / "f", tensors))


@pytest.mark.parametrize("cut", [1, 1000])
def test_a_truncated_shard_is_named(tmp_path, tensors, cut):
    folder = write_folder(tmp_path / "f", tensors, shards=2)
    shard = folder / shard_name(1, 2)
    shard.write_bytes(shard.read_bytes()[:-cut])
    assert f"{shard.name}: the file is cut off" in refusal(inspect, folder)


@pytest.mark.parametrize(
    "name", ["layers.0.attn.wq_a.scale", "layers.7.ffn.experts.3.w1.scale", "layers.2.engram.embed.scale"]
)
def test_a_scale_that_is_no_number_is_refused_at_loading(tmp_path, tensors, name):
    codes = tensors[name].view(torch.uint8).clone()
    codes.view(-1)[-1] = 0xFF
    tensors[name] = codes.view(torch.float8_e8m0fnu)
    folder = write_folder(tmp_path / "f", tensors)
    inspect(folder)
    assert name in refusal(lambda f: load_model(f, quantise=True), folder)


def test_the_config_is_checked_first(tmp_path, tensors):
    config = tiny_config()
    config["text_config"]["hidden_act"] = "gelu"
    assert "hidden_act" in refusal(inspect, write_folder(tmp_path / "f", tensors, config))


def test_prefixed_names_in_two_shards_give_the_same_model(tmp_path, tensors, expected):
    folder = write_folder(tmp_path / "f", {f"model.{name}": value for name, value in tensors.items()}, shards=2)
    assert torch.equal(Driver(load_model(folder, quantise=True)).prefill(0, PROMPT, 20), expected)


def test_image_tensors_are_accepted_and_not_read(tmp_path, tensors, expected):
    for name in ("vision.blocks.0.norm1.weight", "aligner.w1.bias", "image_start", "image_end", "image_newline"):
        tensors[name] = torch.full((3,), float("nan"))
    folder = write_folder(tmp_path / "f", tensors)
    assert torch.equal(Driver(load_model(folder, quantise=True)).prefill(0, PROMPT, 20), expected)


def test_norms_may_be_stored_in_float32(tmp_path, tensors, expected):
    for name in [name for name in tensors if name.endswith("norm.weight")]:
        tensors[name] = tensors[name].float()
    folder = write_folder(tmp_path / "f", tensors)
    assert torch.equal(Driver(load_model(folder, quantise=True)).prefill(0, PROMPT, 20), expected)


@pytest.mark.parametrize("changes", [{"hidden_size": 2**30}, {"o_lora_rank": 2**30}, {"vocab_size": 2**31 - 1}])
def test_sizes_that_no_tensor_has_are_faults_of_the_weights(changes):
    config = tiny_config()
    config["text_config"].update(changes)
    with pytest.raises(CheckpointError, match="and must have"):
        DeepseekV41Factory().inspect(TINY, config)
