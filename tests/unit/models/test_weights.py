"""The description of the tensors: what is expected of a checkpoint, and what is loaded from it."""

from math import prod

import pytest
import torch
from made_checkpoints import TINY, tiny_config, tiny_tensors
from released import released_config

from deepinfer_core.interfaces.ops import WeightFormat
from deepinfer_core.loading.headers import ITEM_BYTES
from deepinfer_core.loading.index import open_checkpoint
from deepinfer_core.loading.reader import CheckpointReader
from deepinfer_core.models.deepseek_v41.draft import describe_draft
from deepinfer_core.models.deepseek_v41.parse import parse_config
from deepinfer_core.models.deepseek_v41.plan import plan_layers
from deepinfer_core.models.deepseek_v41.sources import LoadingSource, SpecSource
from deepinfer_core.models.deepseek_v41.weights import describe_model

CPU = torch.device("cpu")


def describe(source, config):
    parsed = parse_config(config)
    return describe_model(source, parsed, plan_layers(parsed)), describe_draft(source, parsed)


def specs_of(config):
    source = SpecSource()
    describe(source, config)
    return source.specs


@pytest.fixture(scope="module")
def loaded():
    checkpoint = open_checkpoint(TINY)
    with CheckpointReader(checkpoint, CPU) as reader:
        return describe(LoadingSource(checkpoint, reader, CPU), tiny_config())


def test_the_released_checkpoint_has_these_tensors_and_bytes():
    """The release has 96,085 tensors of 510,286,023,000 bytes, 266 of them, for images, not of the text model."""
    specs = specs_of(released_config())
    assert len({spec.name for spec in specs}) == len(specs) == 96_085 - 266
    hidden, vision = 5120, 1024
    block = (3 * vision + 1) * vision + 2 * vision + (vision + 1) * vision + 2 * vision + 3 * 2816 * vision
    tower = (588 + 1) * vision + 32 * block + vision
    aligner = (9 * vision + 1) * hidden + (hidden + 1) * hidden + 3 * hidden
    stored = sum(prod(spec.shape) * ITEM_BYTES[spec.dtypes[0]] for spec in specs)
    assert stored + 2 * (tower + aligner) == 510_286_023_000


def test_no_tensor_is_described_twice_or_left_out():
    specs = specs_of(tiny_config())
    assert len({spec.name for spec in specs}) == len(specs)
    assert {spec.name for spec in specs} == tiny_tensors().keys()


def test_everything_described_is_read_but_the_bias_for_images():
    class Recorded(CheckpointReader):
        names: list[str] = []  # noqa: RUF012

        def read_into(self, name, out):
            self.names.append(name)
            super().read_into(name, out)

    checkpoint = open_checkpoint(TINY)
    with Recorded(checkpoint, CPU) as reader:
        describe(LoadingSource(checkpoint, reader, CPU), tiny_config())
    left = {spec.name for spec in specs_of(tiny_config())} - set(reader.names)
    mapped = {f"layers.{layer}.engram.embed.{part}" for layer in (1, 2) for part in ("weight", "scale")}
    assert left == mapped | {name for name in tiny_tensors() if name.endswith("bias_vl")}
    assert len(reader.names) == len(set(reader.names))


def test_experts_are_stacked_in_their_stored_format(loaded):
    stack = loaded[0].layers[3].block.moe.w2
    tensors = tiny_tensors()
    assert stack.format is WeightFormat.FP4
    assert (stack.out_features, stack.in_features) == (128, 64)
    for expert in range(8):
        stored = tensors[f"layers.3.ffn.experts.{expert}.w2.weight"].view(torch.uint8)
        assert torch.equal(stack.data[expert], stored)
        scale = tensors[f"layers.3.ffn.experts.{expert}.w2.scale"].view(torch.uint8)
        assert torch.equal(stack.scale[expert], scale)


def test_weights_stay_in_their_stored_formats(loaded):
    model, _ = loaded
    attention = model.layers[0].block.attention
    assert attention.wq_a.format is WeightFormat.FP8
    assert attention.wq_a.data.dtype == torch.float8_e4m3fn
    assert attention.wq_a.scale.dtype == torch.uint8
    assert attention.wq_a.scale.shape == (2, 4)
    assert model.head.format is WeightFormat.BF16
    assert torch.equal(model.norm, tiny_tensors()["norm.weight"].float())
    assert attention.sink.dtype == torch.float32


def test_only_sources_have_compressors_and_indexers(loaded):
    layers = loaded[0].layers
    assert [i for i, layer in enumerate(layers) if layer.compressor] == [2, 5]
    assert [i for i, layer in enumerate(layers) if layer.indexer] == [2, 5, 6]
    assert [i for i, layer in enumerate(layers) if layer.engram] == [1, 2]
    assert layers[2].compressor.wgate is not None
    assert layers[5].compressor.wgate is None


def test_draft_stages_are_loaded(loaded):
    draft = loaded[1]
    assert len(draft.stages) == 3
    assert draft.stages[2].moe.w1.data.shape == (4, 64, 64)
    assert draft.main_proj.in_features == 3 * 128
    assert torch.equal(draft.norm, tiny_tensors()["mtp.2.norm.weight"])


def test_no_draft_stages_no_draft_tensors():
    config = tiny_config()
    config["text_config"]["num_nextn_predict_layers"] = 0
    assert not [spec.name for spec in specs_of(config) if spec.name.startswith("mtp.")]
