"""What the sampler draws from, at the level of logits, against the published formulas in numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sampling_kit import Bench

from deepinfer_core.api.params import SamplingParams

VOCAB = 12
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=12)
LOGITS = st.lists(st.floats(-20, 20, width=32), min_size=VOCAB, max_size=VOCAB)
STOPS, PAIR, BANNED = (3, 7), (4, 5), 6


def expected(
    logits: Sequence[float], prompt: Sequence[int], output: Sequence[int], params: SamplingParams
) -> np.ndarray:
    """Bias; repetition (CTRL, arXiv 1909.05858: positive logits divided, others multiplied) over prompt and answer;
    presence and frequency (OpenAI) over the answer alone; then what may not come: a bad word's last token after its
    beginning, stops before min_tokens, ids that are not allowed."""
    x = np.array(logits, np.float64)
    for token, bias in params.logit_bias.items():
        x[token] += bias
    for token in {*prompt, *output}:
        x[token] = x[token] / params.repetition_penalty if x[token] > 0 else x[token] * params.repetition_penalty
    for token, count in Counter(output).items():
        x[token] -= params.presence_penalty + params.frequency_penalty * count
    banned = set(range(VOCAB)) - set(params.allowed_token_ids or range(VOCAB)) | {BANNED}
    if len(output) < params.min_tokens:
        banned |= set(STOPS)
    if output and output[-1] == PAIR[0]:
        banned.add(PAIR[1])
    x[list(banned)] = -np.inf
    shifted = x - x.max()
    return shifted - np.log(np.exp(shifted).sum())


@st.composite
def params(draw: st.DrawFn) -> SamplingParams:
    values: dict[str, Any] = {
        "repetition_penalty": draw(st.floats(0.5, 3)),
        "presence_penalty": draw(st.floats(-2, 2)),
        "frequency_penalty": draw(st.floats(-2, 2)),
        "logit_bias": draw(st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-5, 5), max_size=3)),
        "allowed_token_ids": draw(st.none() | st.just((0, 1, 3, 5, 9))),
        "min_tokens": draw(st.integers(0, 4)),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(values))))
    return SamplingParams(logprobs=VOCAB, **{name: values[name] for name in chosen})


@given(LOGITS, TOKENS.filter(bool), TOKENS, params())
def test_a_token_is_drawn_from_what_the_formulas_say(
    logits: list[float], prompt: list[int], output: list[int], asked: SamplingParams
) -> None:
    bench = Bench(VOCAB, logprobs_mode="processed")
    bench.give(2, asked, prompt=prompt, output=output, stop_token_ids=STOPS, bad_words=[PAIR, (BANNED,)])
    sampled = bench.step([2], torch.tensor([logits]))
    assert sampled.top_ids is not None
    assert sampled.top_logprobs is not None
    got = np.full(VOCAB, -np.inf)
    for token, logprob in zip(sampled.top_ids[0, 0].tolist(), sampled.top_logprobs[0, 0].tolist(), strict=True):
        if token >= 0:
            got[token] = logprob
    np.testing.assert_allclose(got, expected(logits, prompt, output, asked), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("resumed_at", [None, 1, 4])
def test_each_step_of_an_answer_counts_the_steps_before(resumed_at: int | None) -> None:
    """Among them the first, which sees the prompt alone, and those after a preemption."""
    asked = SamplingParams(
        repetition_penalty=1.7, presence_penalty=0.5, frequency_penalty=0.4, min_tokens=3, logprobs=0
    )
    told: dict[str, Any] = {"prompt": [1, 1, 8], "stop_token_ids": STOPS, "bad_words": [PAIR, (BANNED,)]}
    bench, slot = Bench(VOCAB, logprobs_mode="processed"), 1
    output: list[int] = []
    bench.give(slot, asked, **told)
    generator = torch.Generator().manual_seed(0)
    for step in range(8):
        if step == resumed_at:
            slot = 5
            bench.give(slot, asked, output=output, **told)
        logits = 3 * torch.randn(1, VOCAB, generator=generator)
        sampled = bench.step([slot], logits)
        assert sampled.logprob is not None
        token = int(sampled.tokens[0, 0])
        scores = expected(logits[0].tolist(), told["prompt"], output, asked)
        assert float(sampled.logprob[0, 0]) == pytest.approx(scores[token], abs=1e-5)
        output.append(token)
