"""The constraint registers, refuses what it cannot enforce, and lets an answer write its texts and nothing else."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
import tokenizers
from deepinfer_core.api.config import read_environment
from deepinfer_core.api.errors import GenerationError, RequestError
from deepinfer_core.plugin.loader import load_plugins
from deepinfer_core.text.tokenizer import Tokenizer
from tokenizers import AddedToken, decoders, models

from deepinfer_myplugin.choice import MyPluginChoice, MyPluginMatcher

END = 6
VOCABULARY = {"y": 0, "e": 1, "s": 2, "n": 3, "o": 4, "ye": 5}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    inner = tokenizers.Tokenizer(models.BPE(vocab=VOCABULARY, merges=[("y", "e")]))
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken("<end>", special=True)])
    return Tokenizer.from_json(inner.to_str())


@pytest.fixture
def compile_texts(tokenizer: Tokenizer) -> Any:
    return lambda spec: MyPluginChoice().compile("myplugin", spec, tokenizer, (END,))


def allowed(matcher: MyPluginMatcher, *drafts: int) -> list[set[int]]:
    out = np.zeros((1 + len(drafts), 1), dtype=np.int32)
    matcher.mask(drafts, out)
    return [{token for token in range(32) if row >> token & 1} for (row,) in out.tolist()]


def test_the_plugin_registers_the_constraint() -> None:
    point = EntryPoint("myplugin", "deepinfer_myplugin.plugin", "deepinfer")
    plugins = load_plugins(read_environment({}), found=[point])
    assert isinstance(plugins.registry.constraints["myplugin"], MyPluginChoice)


def test_an_answer_is_one_of_the_texts(compile_texts: Any) -> None:
    matcher = compile_texts(["yes", "no"]).matcher()
    assert allowed(matcher) == [{0, 5, 3}]
    matcher.advance([5])
    assert allowed(matcher) == [{2}]
    assert not matcher.finished
    matcher.advance([2])
    assert matcher.finished
    assert allowed(matcher) == [{END}]


def test_a_text_that_another_goes_on_from_may_end_or_go_on(compile_texts: Any) -> None:
    matcher = compile_texts(["no", "none"]).matcher()
    matcher.advance([3, 4])
    assert not matcher.finished
    assert allowed(matcher) == [{3, END}]


def test_drafts_are_looked_at_and_forgotten(compile_texts: Any) -> None:
    matcher = compile_texts(["yes"]).matcher()
    assert allowed(matcher, 0, 1, 4) == [{0, 5}, {1}, {2}, set()]
    assert allowed(matcher) == [{0, 5}]


def test_a_rollback_takes_tokens_back(compile_texts: Any) -> None:
    matcher = compile_texts(["yes", "no"]).matcher()
    matcher.advance([0, 1])
    matcher.rollback(1)
    assert allowed(matcher) == [{1}]
    matcher.rollback(0)
    matcher.rollback(1)
    assert allowed(matcher) == [{0, 5, 3}]


def test_a_token_that_leads_nowhere_is_refused(compile_texts: Any) -> None:
    matcher = compile_texts(["yes"]).matcher()
    with pytest.raises(GenerationError, match="token 3 leads to none"):
        matcher.advance([3])


@pytest.mark.parametrize("spec", [[], [""], "yes", [1], {"yes": 1}, None])
def test_what_is_no_list_of_texts_is_refused(compile_texts: Any, spec: object) -> None:
    with pytest.raises(RequestError, match="give a list of texts"):
        compile_texts(spec)


def test_a_text_that_cannot_be_spelt_is_refused(compile_texts: Any) -> None:
    with pytest.raises(RequestError, match="no token for byte 120 of 'nox'"):
        compile_texts(["no", "nox"])
