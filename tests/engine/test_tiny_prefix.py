"""Prefix hits on a DeepSeek-V4.1 checkpoint: bit for bit the cold answer, whatever the formats, chunks and room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer_core.api.llm import LLM
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.api.params import SamplingParams

DATA = Path(__file__).parents[1] / "data"
WINDOW, LAYERS, BOUNDARY, RING = 16, 8, 5, 28  # of the checkpoint; a ring has room for two steps of six rows more
BLOCK = 16
LOGPROBS = SamplingParams(temperature=0.0, max_tokens=5, logprobs=3, ignore_eos=True)


def open_tiny(**options: Any) -> LLM:
    defaults = {"backend": "cpu", "max_length": 320, "max_running": 8, "block_size": BLOCK, "cache_tokens": 2048}
    return LLM(str(DATA / "tiny_v41"), **{**defaults, **options})


@pytest.fixture(scope="module")
def ids() -> list[int]:
    found: list[int] = np.load(DATA / "golden_logits.npz")["ids"].tolist()
    return [*found, *reversed(found), *found[::2]]


@pytest.fixture(scope="module")
def cold() -> Iterator[LLM]:
    with open_tiny(prefix_cache=False) as llm:
        yield llm


@pytest.fixture(scope="module")
def warm(ids: list[int]) -> Iterator[LLM]:
    """An engine that has the blocks of the first 272 ids."""
    with open_tiny() as llm:
        llm.generate([ids[:272]], LOGPROBS)
        yield llm


def one(llm: LLM, prompt: list[int], params: SamplingParams = LOGPROBS) -> RequestOutput:
    (output,) = llm.generate([prompt], params)
    assert output.error is None
    return output


@pytest.mark.parametrize("length", [*range(188, 212), 255, 256, 257, 272, 273])
def test_a_hit_of_any_length_changes_no_bit(cold: LLM, warm: LLM, ids: list[int], length: int) -> None:
    """Every residue of block and ratio, and a prompt that is all cached."""
    prompt = ids[:length]
    got = one(warm, prompt)
    assert got.outputs == one(cold, prompt).outputs
    hit, start = min(length, 272) // BLOCK * BLOCK, length - RING
    assert got.num_cached_tokens == min(hit - BOUNDARY * (WINDOW - 1), start - (BOUNDARY + 1) * (WINDOW - 1))
    assert got.replay == "exact"


@pytest.mark.parametrize(
    "options",
    [
        {"activation_quant": "off"},
        {"activation_quant": "off", "block_size": 64, "cache_tokens": 1024},
        {"max_step_tokens": 7, "overlap": False},
        {"prefill": "exact"},
        {"decoder_rows": 1},
        {"cache_tokens": 320, "max_running": 2},
    ],
    ids=str,
)
def test_hits_under_any_option_change_no_bit(ids: list[int], options: dict[str, Any]) -> None:
    params = LOGPROBS.replace(max_tokens=3)
    prompts = [ids[:230], ids[:230], [*ids[:200], *ids[3:20]], ids[:224]]
    with open_tiny(prefix_cache=False, **options) as llm:
        expected = [one(llm, prompt, params).outputs for prompt in prompts]
    with open_tiny(**options) as llm:
        got = [one(llm, prompt, params) for prompt in prompts]
    assert [output.outputs for output in got] == expected
    assert got[0].num_cached_tokens == 0
    assert got[1].num_cached_tokens > 0


def test_a_conversation_hits_what_it_generated(cold: LLM, ids: list[int]) -> None:
    with open_tiny() as llm:
        turn = ids[:120]
        for cached in (False, True, True):
            output = one(llm, turn, LOGPROBS.replace(max_tokens=50))
            assert output.outputs == one(cold, turn, LOGPROBS.replace(max_tokens=50)).outputs
            assert (output.num_cached_tokens > 0) == cached
            turn = [*turn, *output.outputs[0].token_ids, *ids[:7]]


def test_bounded_replay_computes_the_ring_alone_and_says_so(cold: LLM, ids: list[int]) -> None:
    prompt = ids[:250]
    with open_tiny(replay="bounded") as llm:
        first, again = one(llm, prompt), one(llm, prompt)
    assert first.outputs == one(cold, prompt).outputs
    assert (first.replay, again.replay) == (None, "bounded")
    assert again.num_cached_tokens == 240 - RING
    scores = [[token.chosen.logprob for token in output.outputs[0].logprobs or ()] for output in (first, again)]
    assert np.isfinite(scores).all()


def test_prompt_logprobs_bypass_the_cache(cold: LLM, warm: LLM, ids: list[int]) -> None:
    params = LOGPROBS.replace(prompt_logprobs=2)
    got = one(warm, ids[:230], params)
    assert (got.prompt_logprobs, got.num_cached_tokens) == (one(cold, ids[:230], params).prompt_logprobs, 0)


def test_salted_prompts_are_cold(warm: LLM, ids: list[int]) -> None:
    (salted,) = warm.generate([ids[:230]], LOGPROBS, cache_salt="mine")
    (again,) = warm.generate([ids[:230]], LOGPROBS, cache_salt="mine")
    assert (salted.num_cached_tokens, again.num_cached_tokens > 0) == (0, True)
    assert salted.outputs == again.outputs == one(warm, ids[:230]).outputs


def test_a_cache_that_can_never_hit_is_reported() -> None:
    with open_tiny(max_length=64) as llm:
        assert any("prefix cache has no use" in line and "75 tokens" in line for line in llm.report)
    with open_tiny() as llm:
        assert not any("prefix cache" in line for line in llm.report)


PARAMS = st.sampled_from(
    [
        {"temperature": 0.0, "logprobs": 2},
        {"temperature": 0.0, "repetition_penalty": 1.3, "frequency_penalty": 0.4},
        {"temperature": 1.1, "seed": 3, "n": 2},
        {"temperature": 0.9, "seed": 4, "top_p": 0.8, "top_k": 40, "logprobs": 0},
        {"temperature": 0.0, "prompt_logprobs": 1},
        {"temperature": 1.0, "seed": 5, "min_tokens": 4, "logit_bias": {1: 5.0}},
    ]
)
REQUESTS = st.lists(
    st.tuples(st.sampled_from([0, 0, 40]), st.integers(1, 240), st.integers(0, 5), PARAMS), min_size=2, max_size=7
)
_solo: dict[str, Any] = {}


@settings(max_examples=4)
@given(
    requests=REQUESTS,
    step_tokens=st.sampled_from([5, 33, 512]),
    blocks=st.integers(17, 40),
    running=st.integers(1, 5),
    overlap=st.booleans(),
)
def test_random_batches_equal_solo_runs(
    cold: LLM, ids: list[int], requests: list[Any], step_tokens: int, blocks: int, running: int, overlap: bool
) -> None:
    """Hits, preemptions, chunks and neighbours drawn together; the last requests of each run begin like the first."""
    prompts = [ids[start : start + length] + ids[end : 2 * end] for start, length, end, _ in requests]
    params = [SamplingParams(max_tokens=5, **chosen) for *_, chosen in requests]
    sizes = {"max_step_tokens": step_tokens, "max_running": running, "cache_tokens": blocks * BLOCK}
    with open_tiny(overlap=overlap, **sizes) as llm:
        for _ in range(2):
            outputs = llm.generate(prompts, params)
            for prompt, chosen, output in zip(prompts, params, outputs, strict=True):
                name = repr((prompt, chosen))
                if name not in _solo:
                    _solo[name] = one(cold, prompt, chosen)
                assert output.error is None
                assert output.outputs == _solo[name].outputs
                assert output.prompt_logprobs == _solo[name].prompt_logprobs
            llm.engine._scheduler.check()
