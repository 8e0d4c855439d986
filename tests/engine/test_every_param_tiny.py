"""Every field of SamplingParams on a checkpoint: in one batch, in steps of any size, to the last bit as alone."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from every_param import (
    KINDS_OF_ENDING,
    Setting,
    Words,
    assert_ends_at_one_place,
    assert_same,
    kinds_of_ending,
    parameters,
    settings_of_fields,
)
from made_checkpoints import tiny_tensors, write_folder
from made_tokenizers import byte_level_json

from deepinfer_core.api.llm import LLM
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.batchio.jsonl import decode_object, encode_line
from deepinfer_core.batchio.records import Answerer, Asked

TEXTS = Words(
    264, (1,), tuple(range(97, 109)), tuple("abcdefghijklmnopqrstuvwxyz0123456789"), ("ab", "cd", "abc", "d ")
)
LLMS: dict[str, dict[str, Any]] = {
    "a row a step": {"max_step_tokens": 1, "max_running": 4},  # slow: of every third request only
    "three rows a step, no overlap": {"max_step_tokens": 3, "overlap": False},
    "preempting": {"max_running": 5, "cache_tokens": 64, "max_step_tokens": 64},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_folder(tmp_path_factory.mktemp("tiny") / "texts", tiny_tensors())
    (made / "tokenizer.json").write_text(byte_level_json())
    return made


def open_texts(folder: Path, **options: Any) -> LLM:
    base = {"backend": "cpu", "max_length": 64, "max_running": 8, "block_size": 16, "prefix_cache": False}
    return LLM(str(folder), **{**base, **options})


def batch_of_tiny() -> list[tuple[list[int], SamplingParams]]:
    by_field = settings_of_fields(TEXTS)
    del by_field["processors"], by_field["constraint"]  # they need plugins
    listed = [setting for settings in by_field.values() for setting in settings[:2]]
    lengths = (1 + place * 7 % 20 for place in range(len(listed)))
    growing = {"max_tokens": 33, "ignore_eos": True}
    return [([2 + place], parameters(growing)) for place in range(3)] + [
        ([(11 * place + 5 * i + i * i) % 256 for i in range(length)], parameters({"max_tokens": 6, **setting}))
        for place, (length, setting) in enumerate(zip(lengths, listed, strict=True))
    ]


@pytest.fixture(scope="module")
def solo_answers(folder: Path) -> list[RequestOutput]:
    with open_texts(folder) as llm:
        return [llm.generate([prompt], params)[0] for prompt, params in batch_of_tiny()]


@pytest.mark.parametrize("engine", LLMS)
def test_a_checkpoint_answers_each_setting_in_one_batch_as_alone(
    folder: Path, solo_answers: list[RequestOutput], engine: str
) -> None:
    chosen = slice(0, None, 3 if LLMS[engine].get("max_step_tokens") == 1 else 1)
    prompts, params = zip(*batch_of_tiny()[chosen], strict=True)
    with open_texts(folder, **LLMS[engine]) as llm:
        outputs = llm.generate(prompts, params)
        assert llm.tokenizer is not None
        for output, expected, asked in zip(outputs, solo_answers[chosen], params, strict=True):
            assert output.error is None
            assert_same(output, expected)
            assert_ends_at_one_place(output, asked, llm.tokenizer)
        assert engine != "preempting" or llm.engine.stats().preemptions > 0
    assert chosen.step != 1 or kinds_of_ending(outputs) == KINDS_OF_ENDING


@pytest.mark.parametrize("setting", [{"top_k": 1}, {"min_p": 1.0}, {"allowed_token_ids": (97,)}, {"top_p": 1e-9}])
def test_alternatives_that_could_not_be_drawn_are_left_out_of_a_record(folder: Path, setting: Setting) -> None:
    """Their logprob is -inf, for which JSON has no number."""
    with open_texts(folder, logprobs_mode="processed") as llm:
        (output,) = llm.generate([[5, 6]], parameters({"logprobs": 5, "max_tokens": 3, **setting}))
        record = Answerer("m", 0, llm.tokenizer).record(Asked(1, "a"), output)
    assert output.outputs[0].logprobs is not None
    assert all(len(scored.top) == 1 and scored.chosen.logprob == 0.0 for scored in output.outputs[0].logprobs)
    assert decode_object(encode_line(record)) == json.loads(json.dumps(record, allow_nan=False))


def test_a_row_has_the_same_bits_in_batches_of_any_size_and_order(folder: Path) -> None:
    prompts = [[(13 * place + 7 * i * i + i) % 256 for i in range(1 + place * 5 % 23)] for place in range(45)]
    params = SamplingParams(max_tokens=3, seed=1, ignore_eos=True, logprobs=TEXTS.vocab, prompt_logprobs=3)
    with open_texts(folder, max_running=64) as llm:
        alone = [llm.generate([prompt], params)[0] for prompt in prompts[:3]]
        for size in (2, 7, 45):
            order = random.Random(size).sample(range(size), size)
            outputs = llm.generate([prompts[place] for place in order], params)
            for place, output in zip(order, outputs, strict=True):
                if place < len(alone):
                    assert_same(output, alone[place])
