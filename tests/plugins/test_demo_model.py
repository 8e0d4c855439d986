"""The demo model plugin: its tokenizer, the folders that it makes, and what the core makes of them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import deepseek_recipe
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.config import read_environment
from deepinfer_core.api.errors import PluginError
from deepinfer_core.models.deepseek_v41.engram_map import load_token_classes
from deepinfer_core.models.deepseek_v41.factory import DeepseekV41Factory
from deepinfer_core.plugin.loader import load_plugins
from deepinfer_core.text.chat import ChatFormat, read_conversation
from deepinfer_core.text.tokenizer import Tokenizer
from deepinfer_demo_model import source
from deepinfer_demo_model.source import ready_folder
from deepinfer_demo_model.spec import BENCH_50M, EOS, ModelSpec
from deepinfer_demo_model.tokenizer_file import SPECIAL_TOKENS, build_tokenizer

SMALL = ModelSpec(
    vocab_size=512,
    hidden_size=64,
    num_hidden_layers=8,
    moe_intermediate_size=32,
    num_attention_heads=6,
    head_dim=64,
    qk_rope_head_dim=32,
    q_lora_rank=96,
    o_lora_rank=64,
    o_groups=2,
    n_routed_experts=2,
    num_experts_per_tok=2,
    sliding_window=32,
    compress_ratios=(0, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0),
    kv_source_layer_ids=(1, 3, 4),
    index_source_layer_ids=(1, 3, 4, 6),
    index_n_heads=16,
    index_head_dim=32,
    index_topk=16,
    candidate_source_layer_id=4,
    candidate_topk_blocks=8,
    candidate_block_size=4,
    engram_layer_ids=(1, 2),
    engram_vocab_size=400,
    num_nextn_predict_layers=3,
    dspark_target_layer_ids=(5, 6, 7),
    dspark_n_routed_experts=2,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ready_folder("small", SMALL, (tmp_path_factory.mktemp("models"),))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer is not None
    return tokenizer


@given(st.text())
def test_any_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


def test_words_of_the_text_have_merges(tokenizer):
    assert len(tokenizer.encode("The clockmaker looked at the clock.")) < 20


def test_special_tokens_have_the_first_ids(tokenizer):
    assert [tokenizer.token_id(text) for text, _ in SPECIAL_TOKENS] == list(range(len(SPECIAL_TOKENS)))


def test_every_special_token_of_the_chat_format_is_one_id(tokenizer):
    kinds = [getattr(deepseek_recipe.SpecialToken, name) for name in dir(deepseek_recipe.SpecialToken)]
    spellings = [kind.default_str() for kind in kinds if isinstance(kind, deepseek_recipe.SpecialToken)]
    assert len(spellings) >= 18
    assert {text: len(tokenizer.encode(text)) for text in spellings} == dict.fromkeys(spellings, 1)


def test_chat_with_thinking_and_tools_renders(tokenizer):
    weather = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Is it raining in Paris?"},
        {"role": "assistant", "content": "", "reasoning_content": "I must look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
        {"role": "user", "content": "And </think> now?"},
    ]
    conversation = read_conversation({"messages": messages, "tools": [{"type": "function", "function": weather}]})
    ids = ChatFormat(tokenizer).encode(conversation)
    assert ids[0] == 0
    assert tokenizer.token_text(ids[-1]) == "<think>"
    assert ids.count(EOS) == 1  # after the assistant's turn
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert "<｜System｜>" in text
    assert '<｜DSML｜ invoke name="weather">' in text


@pytest.mark.parametrize("spec", [SMALL, BENCH_50M])
def test_tokenizer_fills_the_vocabulary_and_is_always_the_same(spec):
    first, second = build_tokenizer(spec.vocab_size), build_tokenizer(spec.vocab_size)
    assert first.to_str() == second.to_str()
    assert sorted(first.get_vocab(with_added_tokens=True).values()) == list(range(spec.vocab_size))


def test_the_engine_accepts_the_folder(folder):
    info = DeepseekV41Factory().inspect(folder, json.loads((folder / "config.json").read_text()))
    assert info.vocab_size == SMALL.vocab_size
    assert info.eos_token_ids == (EOS,)
    assert info.max_drafts == SMALL.dspark_block_size


def test_the_token_map_is_the_one_that_its_tokenizer_gives(folder, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    classes = json.loads((folder / "engram_token_map.json").read_text())
    assert load_token_classes(tmp_path, SMALL.vocab_size, max(classes) + 1) == classes
    assert max(classes) + 1 < SMALL.vocab_size


def test_a_folder_is_made_once(folder):
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert ready_folder("small", SMALL, (folder.parent,)) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_another_spec_gets_another_folder(folder):
    assert ready_folder("small", replace(SMALL, sliding_window=9), (folder.parent,)) != folder


def test_a_base_that_cannot_be_written_to_is_passed_over(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    made = ready_folder("small", SMALL, (blocked, tmp_path / "cache"))
    assert made.parent == tmp_path / "cache"
    assert ready_folder("small", SMALL, (blocked, tmp_path / "cache")) == made
    with pytest.raises(PluginError, match="'small' has to be made on first use and cannot be written to .*file"):
        ready_folder("small", SMALL, (blocked,))


def test_racing_uses_get_one_whole_folder(tmp_path):
    with ThreadPoolExecutor(3) as pool:
        found = set(pool.map(lambda _: ready_folder("small", SMALL, (tmp_path,)), range(3)))
    assert list(tmp_path.iterdir()) == list(found)


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(tokenizer: object, folder: Path) -> None:
        assert (folder / "config.json").is_file()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(source, "write_tokenizer", fail)
    with pytest.raises(PluginError, match="No space left on device"):
        ready_folder("small", SMALL, (tmp_path,))
    assert list(tmp_path.iterdir()) == []


def test_the_plugin_registers_its_models():
    point = EntryPoint("demo_model", "deepinfer_demo_model.plugin", "deepinfer")
    plugins = load_plugins(read_environment(), found=[point])
    assert list(plugins.registry.model_sources) == ["bench-50m", "demo"]
