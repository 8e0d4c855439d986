"""The whole engine on the tiny checkpoint: golden outputs, and one answer whatever goes on around a request."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from deepinfer_conformance.laws.engine import (
    GOLDEN,
    TINY,
    VOCABULARY,
    bits,
    distributions,
    every_quant,
    goldens,
    prompts,
    settings,
    small_options,
    tokens,
)
from deepinfer_conformance.subject import Subject
from deepinfer_core import LLM, SamplingParams
from deepinfer_core.api.errors import RequestError
from deepinfer_core.engine.request import Request

MakeLLM = Callable[..., LLM]
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, logprobs=2)
full = pytest.mark.level("full")
invariant = pytest.mark.capability("determinism.batch_invariant")


# --- golden outputs ----------------------------------------------------------------------------------------------


@every_quant
@pytest.mark.parametrize(
    ("step_tokens", "length"), [(512, 121), (7, 60), pytest.param(1, 30, marks=full), pytest.param(64, 121, marks=full)]
)
def test_prompt_logprobs_are_the_golden_ones(
    subject: Subject, llm: MakeLLM, tiny: Path, quant: str, step_tokens: int, length: int
) -> None:
    """Every row of the prompt, in one step and in chunks."""
    golden = goldens(tiny)
    ids, logits = golden["ids"].tolist()[:length], golden[f"f32_{GOLDEN[quant]}"]
    expected = logits.log_softmax(-1)[: length - 1]
    engine = llm(activation_quant=quant, dtype="float32", **small_options(subject, max_step_tokens=step_tokens))
    (output,) = engine.generate([ids], SamplingParams(max_tokens=0, prompt_logprobs=VOCABULARY))
    got = distributions(output)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-3)
    assert torch.equal(got.argmax(-1), expected.argmax(-1))


@every_quant
@pytest.mark.parametrize("step_tokens", [3, pytest.param(512, marks=full)])
def test_the_greedy_continuation_is_the_golden_one(
    subject: Subject, llm: MakeLLM, tiny: Path, quant: str, step_tokens: int
) -> None:
    golden = goldens(tiny)
    options = small_options(subject, max_step_tokens=step_tokens, prefill="exact", activation_quant=quant)
    (output,) = llm(dtype="float32", **options).generate(
        [golden["ids"][:37].tolist()], SamplingParams(temperature=0.0, max_tokens=24)
    )
    assert tokens([output]) == [[tuple(golden[f"greedy_{GOLDEN[quant]}"].tolist())]]


@every_quant
@pytest.mark.parametrize("rows", [22, pytest.param(40, marks=full)])
@pytest.mark.parametrize("step_tokens", [512, pytest.param(7, marks=full)])
def test_bounded_prefill_gives_the_golden_last_logits(
    subject: Subject, llm: MakeLLM, tiny: Path, quant: str, rows: int, step_tokens: int
) -> None:
    """The decoder half of the model runs on the last rows of the prompt only."""
    golden = goldens(tiny)
    expected = golden[f"bounded_{rows}_{GOLDEN[quant]}"].log_softmax(-1)
    options = small_options(subject, decoder_rows=rows, max_step_tokens=step_tokens, activation_quant=quant)
    params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=VOCABULARY)
    (output,) = llm(dtype="float32", **options).generate([golden["ids"].tolist()], params)
    assert output.error is None
    assert output.outputs[0].logprobs is not None
    got = {one.token_id: one.logprob for one in output.outputs[0].logprobs[0].top}
    torch.testing.assert_close(torch.tensor([got[token] for token in range(VOCABULARY)]), expected, rtol=0, atol=1e-3)


# --- one answer --------------------------------------------------------------------------------------------------


@TINY
@invariant
def test_an_answer_alone_is_the_answer_among_others(subject: Subject, llm: MakeLLM) -> None:
    """To the bit, for eight ways to ask."""
    engine, asked = llm(**small_options(subject, prefix_cache=False)), prompts(8)
    together = engine.generate(asked, settings())
    alone = [engine.generate([prompt], params)[0] for prompt, params in zip(asked, settings(), strict=True)]
    assert bits(alone) == bits(together)


@TINY
@pytest.mark.capability("determinism.same_batch")
@pytest.mark.level("smoke")
def test_the_same_batch_gives_the_same_answers(subject: Subject, llm: MakeLLM) -> None:
    engine, asked = llm(**small_options(subject, prefix_cache=False, overlap=False)), prompts(8)
    first = engine.generate(asked, settings())
    assert bits(engine.generate(asked, settings())) == bits(first)


@TINY
@invariant
@pytest.mark.parametrize(
    "options", [{"overlap": False}, {"max_step_tokens": 11}, {"max_running": 2}], ids=lambda one: next(iter(one))
)
def test_answers_depend_on_no_option_that_is_about_speed(
    subject: Subject, llm: MakeLLM, options: dict[str, Any]
) -> None:
    """Overlap, the size of chunks, the number of slots."""
    asked = prompts(8)
    usual = llm(**small_options(subject, prefix_cache=False)).generate(asked, settings())
    other = llm(**small_options(subject, prefix_cache=False, **options)).generate(asked, settings())
    assert bits(other) == bits(usual)


@TINY
@invariant
@pytest.mark.parametrize("overlap", [True, False])
def test_a_preempted_request_gives_the_answer_of_an_undisturbed_one(
    subject: Subject, llm: MakeLLM, overlap: bool
) -> None:
    """Four requests that begin with a block each and grow to three, in a cache of six."""
    sizes = small_options(subject, prefix_cache=False)
    block = sizes["block_size"]
    asked = [[20 + number, *prompts(1, number)[0] * block][: block - 2] for number in range(4)]
    params = SamplingParams(temperature=0.7, seed=5, max_tokens=2 * block, ignore_eos=True, logprobs=1)
    usual = llm(**sizes).generate(asked, params)
    tight = llm(**{**sizes, "max_length": 4 * block, "cache_tokens": 6 * block, "overlap": overlap})
    assert bits(tight.generate(asked, params)) == bits(usual)
    assert tight.engine.stats().preemptions > 0


@TINY
@invariant
def test_a_prefix_that_was_cached_changes_no_bit(subject: Subject, llm: MakeLLM) -> None:
    draw = random.Random(1)
    prefix = [draw.randrange(10, 500) for _ in range(256)]
    asked = [[*prefix[:length], *range(20, 20 + extra)] for length, extra in ((250, 3), (250, 3), (256, 0), (231, 9))]
    sizes = small_options(subject, max_length=320, cache_tokens=2048)
    cold = llm(**sizes, prefix_cache=False).generate(asked, GREEDY)
    engine = llm(**sizes)
    warm = [engine.generate([prompt], GREEDY)[0] for prompt in asked]
    assert [output.outputs for output in warm] == [output.outputs for output in cold]
    assert warm[0].num_cached_tokens == 0
    assert min(output.num_cached_tokens for output in warm[1:3]) > 0


# --- what is given back ------------------------------------------------------------------------------------------


def assert_idle(engine: LLM) -> None:
    stats = engine.engine.stats()
    assert (stats.running, stats.waiting, stats.used_blocks) == (0, 0, 0)
    assert stats.free_slots == engine.config.max_running


@TINY
def test_an_aborted_request_gives_back_its_blocks_and_disturbs_nobody(subject: Subject, llm: MakeLLM) -> None:
    engine, asked = llm(**small_options(subject, prefix_cache=False)), prompts(3)
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    keys = [
        engine.engine.add(Request(str(number), prompt_token_ids=tuple(prompt), params=params))
        for number, prompt in enumerate(asked)
    ]
    done = [finished for _ in range(4) for finished in engine.engine.step()]
    engine.engine.abort(keys[1])
    while engine.engine.has_unfinished():
        done += engine.engine.step()
    outputs = {finished.key: finished.output for finished in done}
    (aborted,) = outputs[keys[1]].outputs
    assert aborted.finish_reason == "abort"
    assert 0 < len(aborted.token_ids) < 20
    assert_idle(engine)
    for number in (0, 2):
        assert len(tokens([outputs[keys[number]]])[0][0]) == 20


@TINY
def test_a_request_that_cannot_be_served_fails_alone(subject: Subject, llm: MakeLLM) -> None:
    """No token, one too many, an id that there is not; and a prompt that leaves room for just one."""
    engine = llm(**small_options(subject))
    longest = [20] * (engine.max_length - 1)
    asked = [prompts(1)[0], [], [*longest, 20, 20], [VOCABULARY + 3], longest]
    outputs = engine.generate(asked, GREEDY)
    assert [isinstance(output.error, RequestError) for output in outputs] == [False, True, True, True, False]
    assert len(outputs[0].outputs[0].token_ids) == 8
    assert len(outputs[4].outputs[0].token_ids) == 1
    assert_idle(engine)


def soak(subject: Subject, llm: MakeLLM, count: int, seed: int) -> None:
    """Requests of all kinds through a small cache; each answer ends as asked, and everything comes back."""
    draw = random.Random(seed)
    block = min(subject.capabilities.block_sizes)
    engine = llm(**small_options(subject, max_step_tokens=64, max_length=96, cache_tokens=max(192, 2 * block)))
    asked = [[*prompts(1, draw.randrange(9))[0][:40], *range(10, 10 + draw.randrange(1, 9))] for _ in range(count)]
    params = [
        draw.choice(settings()).replace(max_tokens=draw.randint(0, 12), ignore_eos=True, n=1) for _ in range(count)
    ]
    outputs = engine.generate(asked, params)
    for output, one in zip(outputs, params, strict=True):
        assert output.error is None
        assert len(output.outputs[0].token_ids) == one.max_tokens
    assert_idle(engine)
    stats = engine.engine.stats()
    assert stats.free_blocks + stats.cached_blocks > 0


@TINY
def test_everything_comes_back_after_many_requests(subject: Subject, llm: MakeLLM, seed: int) -> None:
    soak(subject, llm, 12, seed)


@TINY
@full
def test_everything_comes_back_after_hundreds_of_requests(subject: Subject, llm: MakeLLM, seed: int) -> None:
    soak(subject, llm, 300, seed)
