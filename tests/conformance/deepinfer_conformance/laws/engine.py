"""The tiny checkpoint through a whole engine: what a backend must claim to run it, requests, and its golden outputs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deepinfer_conformance.subject import Subject
from deepinfer_core import RequestOutput, SamplingParams

Test = Callable[..., Any]

VOCABULARY = 512
LENGTH = 192  # positions of a sequence in most tests
QUANT = ("off", "checkpoint")  # what `activation_quant` may be
GOLDEN = {"off": "aq0", "checkpoint": "aq1"}  # the names of the golden outputs

_WEIGHTS = ("weights.bf16", "weights.fp4", "weights.fp8", "weights.f32")
_CACHES = {
    "checkpoint": ("cache.fp8_e8m0_32", "cache.fp4_e4m3_16", "cache.fp4_e8m0_32", "cache.f32"),
    "off": ("cache.f32",),
}

TINY = pytest.mark.capability(*_WEIGHTS, *_CACHES["checkpoint"])  # needs the checkpoint as it is


def every_quant(test: Test) -> Test:
    """`quant`: quantised as the checkpoint says, or not at all; in float32, as the goldens are."""
    params = [
        pytest.param(one, id=one, marks=pytest.mark.capability("dtype.float32", *_WEIGHTS, *_CACHES[one]))
        for one in QUANT
    ]
    return pytest.mark.parametrize("quant", params)(test)


def small_options(subject: Subject, **options: Any) -> dict[str, Any]:
    """Options of a small engine: blocks as small as the backend takes them, so that their ends are met often."""
    block = min(subject.capabilities.block_sizes)
    sizes = {"max_length": max(LENGTH, 4 * block), "max_running": 8, "block_size": block, "cache_tokens": 64 * block}
    return {**sizes, **options}


@cache
def goldens(tiny: Path) -> Mapping[str, Tensor]:
    """Everything that was stored about the checkpoint: `ids` [121], `f32_aq0` [121, vocabulary], `greedy_aq0`, ..."""
    files = (np.load(tiny.parent / f"{name}.npz") for name in ("golden_logits", "golden_more"))
    return {name: torch.from_numpy(one[name]) for one in files for name in one}


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    """Prompts of 1 to 70 plain tokens, in no order of length."""
    draw = random.Random(seed)
    return [[draw.randrange(10, 500) for _ in range(draw.randint(1, 70))] for _ in range(count)]


def settings() -> list[SamplingParams]:
    """Ways to ask, each different in what it needs of the sampler; greedy and seeded."""
    asked: Sequence[dict[str, Any]] = (
        {"temperature": 0.0},
        {"seed": 1},
        {"seed": 2, "top_k": 9, "logprobs": 3},
        {"temperature": 0.0, "repetition_penalty": 1.4},
        {"seed": 3, "top_p": 0.7, "n": 2},
        {"temperature": 0.0, "prompt_logprobs": 2},
        {"seed": 4, "min_p": 0.02, "presence_penalty": 1.0},
        {"temperature": 0.0, "logprobs": 0, "logit_bias": {7: 4.0}},
    )
    return [SamplingParams(max_tokens=10, **one) for one in asked]


def distributions(output: RequestOutput, vocabulary: int = VOCABULARY) -> Tensor:
    """float32 [prompt - 1, vocabulary]: log-probabilities of what follows each prompt token but the last."""
    assert output.error is None, output.error
    assert output.prompt_logprobs is not None
    rows = torch.full((len(output.prompt_logprobs) - 1, vocabulary), torch.nan)
    for row, scored in zip(rows, output.prompt_logprobs[1:], strict=True):
        assert scored is not None
        for one in scored.top:
            row[one.token_id] = one.logprob
    return rows


def tokens(outputs: Sequence[RequestOutput]) -> list[list[tuple[int, ...]]]:
    """The token ids of all answers. An error is a failure."""
    for output in outputs:
        assert output.error is None, output.error
    return [[answer.token_ids for answer in output.outputs] for output in outputs]


def bits(outputs: Sequence[RequestOutput]) -> list[Any]:
    """What must not depend on anything but the request, to the last bit: tokens, texts and logprobs."""
    tokens(outputs)
    return [(output.outputs, output.prompt_logprobs) for output in outputs]
