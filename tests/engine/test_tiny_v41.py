"""A DeepSeek-V4.1 checkpoint through the whole engine: golden numbers in any step size, and one answer in any batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer_core.api.llm import LLM
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.api.params import SamplingParams

DATA = Path(__file__).parents[1] / "data"
QUANT = {"aq0": "off", "aq1": "checkpoint"}
LENGTH_OF_STEP = {1: 30, 3: 50, 7: 121, 64: 121, 512: 121}  # rows a step -> prompt tokens compared


def open_tiny(**options: Any) -> LLM:
    defaults = {"backend": "cpu", "max_length": 192, "max_running": 8, "block_size": 16, "cache_tokens": 1024}
    return LLM(str(DATA / "tiny_v41"), **{**defaults, **options})


@pytest.fixture(scope="module")
def logits() -> dict[str, Any]:
    return dict(np.load(DATA / "golden_logits.npz"))


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return dict(np.load(DATA / "golden_more.npz"))


@pytest.fixture(scope="module")
def tiny() -> Iterator[LLM]:
    with open_tiny() as llm:
        yield llm


def distributions(output: RequestOutput, vocab: int) -> torch.Tensor:
    """float32 [prompt - 1, vocab]: log-probabilities of what follows each prompt token but the last."""
    assert output.error is None
    assert output.prompt_logprobs is not None
    rows = torch.full((len(output.prompt_logprobs) - 1, vocab), torch.nan)
    for row, scored in zip(rows, output.prompt_logprobs[1:], strict=True):
        assert scored is not None
        for one in scored.top:
            row[one.token_id] = one.logprob
        assert row[scored.chosen.token_id] == scored.chosen.logprob
    return rows


@pytest.mark.parametrize("step_tokens", LENGTH_OF_STEP)
@pytest.mark.parametrize("quant", QUANT)
def test_prompt_logprobs_are_the_golden_logits(logits: dict[str, Any], quant: str, step_tokens: int) -> None:
    ids = logits["ids"].tolist()[: LENGTH_OF_STEP[step_tokens]]
    expected = torch.from_numpy(logits[f"f32_{quant}"]).log_softmax(-1)[: len(ids) - 1]
    params = SamplingParams(max_tokens=0, prompt_logprobs=expected.shape[1])
    with open_tiny(activation_quant=QUANT[quant], max_step_tokens=step_tokens) as llm:
        (output,) = llm.generate([ids], params)
    got = distributions(output, expected.shape[1])
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)
    assert torch.equal(got.argmax(-1), expected.argmax(-1))
    assert output.outputs[0].token_ids == ()


@pytest.mark.parametrize("step_tokens", [3, 512])
@pytest.mark.parametrize("quant", QUANT)
def test_greedy_continuation_is_the_golden_one(golden: dict[str, Any], quant: str, step_tokens: int) -> None:
    with open_tiny(activation_quant=QUANT[quant], max_step_tokens=step_tokens, prefill="exact") as llm:
        (output,) = llm.generate([golden["ids"][:37].tolist()], SamplingParams(temperature=0.0, max_tokens=24))
    assert output.error is None
    assert output.prefill == "exact"
    assert list(output.outputs[0].token_ids) == golden[f"greedy_{quant}"].tolist()


@pytest.mark.parametrize("step_tokens", [7, 512])
@pytest.mark.parametrize("rows", [22, 40])
@pytest.mark.parametrize("quant", QUANT)
def test_bounded_prefill_gives_the_golden_last_logits(
    golden: dict[str, Any], quant: str, rows: int, step_tokens: int
) -> None:
    expected = torch.from_numpy(golden[f"bounded_{rows}_{quant}"]).log_softmax(-1)
    params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=len(expected))
    with open_tiny(activation_quant=QUANT[quant], decoder_rows=rows, max_step_tokens=step_tokens) as llm:
        (output,) = llm.generate([golden["ids"].tolist()], params)
    assert output.prefill == "bounded"
    assert output.outputs[0].logprobs is not None
    got = {one.token_id: one.logprob for one in output.outputs[0].logprobs[0].top}
    torch.testing.assert_close(torch.tensor([got[i] for i in range(len(expected))]), expected, rtol=0, atol=1e-4)


def mixed_batch(ids: list[int]) -> tuple[list[list[int]], list[SamplingParams]]:
    """Prompts of many lengths with many settings."""
    lengths = [1, 2, 5, 17, 31, 50, 64, 90]
    prompts = [ids[i : i + length] for i, length in enumerate(lengths)]
    settings: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"seed": 1},
        {"seed": 2, "top_k": 9, "logprobs": 3},
        {"temperature": 0.0, "repetition_penalty": 1.4},
        {"seed": 3, "top_p": 0.7, "n": 2},
        {"temperature": 0.0, "prompt_logprobs": 2},
        {"seed": 4, "min_p": 0.02, "presence_penalty": 1.0},
        {"temperature": 0.0, "logprobs": 0},
    ]
    return prompts, [SamplingParams(max_tokens=10, **one) for one in settings]


def answers(outputs: list[RequestOutput]) -> list[tuple[Any, ...]]:
    """What must not depend on anything but the request, to the last bit."""
    assert all(output.error is None for output in outputs)
    return [(output.outputs, output.prompt_logprobs) for output in outputs]


def test_a_mixed_batch_is_the_same_with_and_without_overlap(golden: dict[str, Any], tiny: LLM) -> None:
    batch = mixed_batch(golden["ids"].tolist())
    with open_tiny(overlap=False) as llm:
        without = answers(llm.generate(*batch))
    assert answers(tiny.generate(*batch)) == without


def test_tokens_of_a_mixed_batch_are_those_of_solo_runs(golden: dict[str, Any], tiny: LLM) -> None:
    prompts, params = mixed_batch(golden["ids"].tolist())
    together = tiny.generate(prompts, params)
    for prompt, one, output in zip(prompts, params, together, strict=True):
        (alone,) = tiny.generate([prompt], one)
        assert [answer.token_ids for answer in output.outputs] == [answer.token_ids for answer in alone.outputs]


def test_a_cache_too_small_for_all_changes_no_token(golden: dict[str, Any], tiny: LLM) -> None:
    prompts, params = mixed_batch(golden["ids"].tolist())
    roomy = tiny.generate(prompts, params)
    with open_tiny(cache_tokens=112, max_step_tokens=16, max_running=4) as llm:
        tight = llm.generate(prompts, params)
    for output, expected in zip(tight, roomy, strict=True):
        assert [answer.token_ids for answer in output.outputs] == [answer.token_ids for answer in expected.outputs]
