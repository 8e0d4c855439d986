"""A request's parameters resolved at admission: what is refused, and what it becomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deepinfer_core.api.errors import RequestError
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.sampling.request import (
    MAX_BAD_WORD_TOKENS,
    RequestSampling,
    bad_word_tokens,
    pack_mask,
    request_sampling,
)


def resolve(params: dict[str, Any], **more: Any) -> RequestSampling:
    return request_sampling(SamplingParams(**params), seed=0, vocab_size=40, **more)


@pytest.mark.parametrize(
    ("params", "more", "message"),
    [
        ({"logit_bias": {40: 1.0}}, {}, "logit_bias names token 40"),
        ({"allowed_token_ids": [3, 77]}, {}, "allowed_token_ids names token 77"),
        ({}, {"bad_words": [(1, 50)]}, "bad_words names token 50"),
        ({}, {"bad_words": [(1,) * (MAX_BAD_WORD_TOKENS + 1)]}, "9 tokens long"),
        ({}, {"bad_words": [()]}, "0 tokens long"),
        ({"logprobs": 41}, {}, "logprobs = 41"),
        ({"prompt_logprobs": 41}, {}, "prompt_logprobs = 41"),
        ({"allowed_token_ids": [3, 4]}, {"bad_words": [(3,), (4,)]}, "leave no token"),
        ({"allowed_token_ids": [3, 4], "min_tokens": 2}, {"stop_token_ids": [3, 4]}, "min_tokens forbids every token"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(params: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        resolve(params, **more)


def test_limits_themselves_are_allowed() -> None:
    request = resolve({"logprobs": 40, "logit_bias": {39: -100.0}}, bad_words=[(1,) * MAX_BAD_WORD_TOKENS])
    assert request.bad_prefixes.tolist() == [[1] * (MAX_BAD_WORD_TOKENS - 1)]
    assert request.bias_tokens.tolist() == [39]


def test_a_request_without_wishes_carries_nothing() -> None:
    request = resolve({}, stop_token_ids=[1])
    assert request.token_mask is None
    assert not request.penalised
    assert len(request.bias_tokens) == len(request.bad_tokens) == len(request.stop_tokens) == 0


def test_single_token_bad_words_and_allowed_ids_become_one_mask() -> None:
    request = resolve({"allowed_token_ids": [3, 35, 39]}, bad_words=[(35,), (3, 4)])
    expected = np.zeros(40, bool)
    expected[[3, 39]] = True
    assert request.token_mask is not None
    assert request.token_mask.tolist() == pack_mask(expected).tolist()
    assert request.bad_tokens.tolist() == [4]


def test_prefixes_run_from_the_nearest_token_back() -> None:
    request = resolve({}, bad_words=[(1, 2, 3, 4), (5, 6)])
    assert request.bad_tokens.tolist() == [4, 6]
    assert request.bad_prefixes[:, :4].tolist() == [[3, 2, 1, -1], [5, -1, -1, -1]]


def test_stops_beyond_the_vocabulary_are_harmless() -> None:
    assert resolve({"min_tokens": 1}, stop_token_ids=[5, 3, 3, 1000]).stop_tokens.tolist() == [3, 5]


PIECES = {"ab": [1, 2], " ab": [9, 2], "c": [3], " c": [8, 3], "d": [4], " d": [5]}


def test_a_bad_word_is_spelled_at_the_start_and_after_a_space() -> None:
    assert bad_word_tokens(["ab", "c", " d", "d"], PIECES.__getitem__) == ((1, 2), (9, 2), (3,), (4,), (5,))
