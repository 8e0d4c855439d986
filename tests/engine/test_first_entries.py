"""The first compressed entries: a prompt of any short length gives the same logits in one step, in chunks and token by
token, at every compression ratio."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from model_driver import Driver, load_model

from deepinfer_core.api.llm import LLM
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.interfaces.model import Model
from deepinfer_demo_model.checkpoint import write_random_checkpoint
from deepinfer_demo_model.spec import ModelSpec, YarnScaling

TINY = Path(__file__).parents[1] / "data" / "tiny_v41"  # ratios 0, 2 and 1
SMALL = ModelSpec(
    vocab_size=96,
    hidden_size=64,
    num_hidden_layers=4,
    moe_intermediate_size=32,
    num_attention_heads=4,
    head_dim=32,
    qk_rope_head_dim=16,
    q_lora_rank=32,
    o_lora_rank=16,
    o_groups=2,
    n_routed_experts=4,
    num_experts_per_tok=2,
    sliding_window=8,
    compress_ratios=(0, 4, 4, 1),
    kv_source_layer_ids=(1, 3),
    index_source_layer_ids=(1, 3),
    index_n_heads=8,
    index_head_dim=32,
    index_topk=6,
    max_position_embeddings=1024,
    rope_scaling=YarnScaling(64),
)
SHAPES = {4: SMALL, 128: replace(SMALL, compress_ratios=(0, 128, 128, 4), sliding_window=4)}
AROUND_GROUPS = {2: range(1, 8), 4: range(1, 14), 128: (1, 2, 127, 128, 129, 255, 256, 257, 383, 384, 385)}


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory):
    """A model whose largest ratio is the one given; each is made once."""

    @cache
    def make(ratio: int) -> Model:
        if ratio == 2:
            return load_model(TINY, True)
        folder = tmp_path_factory.mktemp("checkpoint")
        write_random_checkpoint(folder, SHAPES[ratio], ())
        return load_model(folder, True)

    return make


def driver_of(model: Model, ratio: int) -> Driver:
    return Driver(model, slots=1, max_length=400, block_size=max(16, ratio), step_tokens=400)


@pytest.mark.parametrize("ratio", [2, 4, 128])
def test_every_short_prompt_has_the_same_logits_however_it_is_cut(model_of, ratio: int) -> None:
    model, longest = model_of(ratio), 3 * ratio + 1
    ids = [(5 * i * i + i) % 90 + 3 for i in range(longest)]
    by_token = driver_of(model, ratio).prefill(0, ids, 1)
    assert torch.equal(driver_of(model, ratio).prefill(0, ids, 3), by_token)
    for length in AROUND_GROUPS[ratio]:
        whole = driver_of(model, ratio).prefill(0, ids[:length], length)
        assert torch.equal(whole, by_token[:length]), f"{length} tokens at once"


@pytest.mark.parametrize("step_tokens", [1, 3, 64])
def test_decoding_from_the_first_token_on_scores_as_prefill_does(step_tokens: int) -> None:
    """A prompt of one token: every group that ends is made of what was decoded."""
    options = {"backend": "cpu", "max_length": 64, "block_size": 16, "prefill": "exact", "max_step_tokens": step_tokens}
    with LLM(str(TINY), **options) as llm:
        for first in (3, 50):
            chosen = SamplingParams(temperature=0.0, max_tokens=7, logprobs=5, ignore_eos=True)
            (decoded,) = llm.generate([[first]], chosen)
            answer = decoded.outputs[0]
            scored = SamplingParams(max_tokens=0, prompt_logprobs=5)
            (prefilled,) = llm.generate([[first, *answer.token_ids]], scored)
            assert prefilled.prompt_logprobs is not None
            assert prefilled.prompt_logprobs[1:] == answer.logprobs
