"""Settings that put every field of SamplingParams to use, and the law that any answer keeps: text, ids and logprobs end
at one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from hypothesis import strategies as st

from deepinfer_core.api.outputs import CompletionOutput, RequestOutput
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.text.tokenizer import Tokenizer

Setting = dict[str, Any]

KINDS_OF_ENDING = {("length", "NoneType"), ("stop", "NoneType"), ("stop", "int"), ("stop", "str")}


@dataclass(frozen=True)
class Words:
    """Ids and texts of one model that settings are made of."""

    vocab: int  # ids that may be sampled
    end: tuple[int, ...]  # end-of-sequence ids
    common: tuple[int, ...]  # ordinary ids; the first four make bad words
    stops: tuple[str, ...]  # texts of which one comes soon
    pairs: tuple[str, ...]  # texts of two tokens or more, made of the first four common ids


def settings_of_fields(words: Words) -> dict[str, list[Setting]]:
    """For each field of SamplingParams the settings that use it. Those of `processors` and `constraint` need plugins
    of the names "favour" and "walk"."""
    ends, first = dict.fromkeys(words.end, 60.0), dict.fromkeys(words.common[:4], 9.0)
    return {
        "n": [{"n": 3, "seed": 5}, {"n": 7, "seed": 6, "max_tokens": 3}, {"n": 2, "temperature": 0.0}],
        "max_tokens": [{"max_tokens": 0}, {"max_tokens": 1}, {"max_tokens": 11, "seed": 8}],
        "min_tokens": [
            {"min_tokens": 4, "logit_bias": ends, "seed": 1},
            {"min_tokens": 5, "stop": words.stops, "logit_bias": first},
        ],
        "temperature": [{"temperature": t, "seed": 2} for t in (0.0, 1e-12, 1e-5, 0.3, 100.0)],
        "top_p": [{"top_p": 1e-9, "seed": 3}, {"top_p": 0.6, "seed": 3}],
        "top_k": [{"top_k": k, "seed": 4} for k in (-1, 0, 1, 5, words.vocab, 9_999_999)],
        "min_p": [{"min_p": 0.3, "seed": 5}, {"min_p": 1.0, "seed": 5}],
        "seed": [{"seed": s} for s in (0, 2**32, 2**63 - 1, 2**63, 2**64 - 1)],
        "stop": [{"stop": words.stops, "seed": 6}, {"stop": words.pairs, "seed": 6, "logit_bias": first}],
        "stop_token_ids": [
            {"stop_token_ids": (*words.common[::2], words.common[0]), "seed": 7},
            {"stop_token_ids": words.end, "ignore_eos": True, "logit_bias": ends, "min_tokens": 2},
        ],
        "include_stop": [
            {"include_stop": True, "stop": words.pairs, "seed": 6, "logit_bias": first},
            {"include_stop": True, "stop_token_ids": words.common, "seed": 8, "logit_bias": first},
            {"include_stop": True, "skip_special_tokens": False, "logit_bias": ends},
        ],
        "ignore_eos": [{"ignore_eos": True, "seed": 9, "logit_bias": dict.fromkeys(words.end, 3.0)}],
        "logprobs": [{"logprobs": k, "seed": 10} for k in (0, 3, words.vocab)],
        "prompt_logprobs": [{"prompt_logprobs": k, "seed": 11} for k in (0, 2, words.vocab)],
        "repetition_penalty": [{"repetition_penalty": r, "temperature": 0.0} for r in (1.3, 0.7, 1e-300, 100.0)],
        "presence_penalty": [{"presence_penalty": p, "temperature": 0.0} for p in (2.0, -2.0)],
        "frequency_penalty": [{"frequency_penalty": 1.5, "temperature": 0.0}, {"frequency_penalty": -0.5, "seed": 12}],
        "logit_bias": [{"logit_bias": dict.fromkeys(range(words.vocab), -100.0), "seed": 13}, {"logit_bias": first}],
        "allowed_token_ids": [{"allowed_token_ids": words.common, "seed": 14}, {"allowed_token_ids": words.common[:1]}],
        "bad_words": [{"bad_words": words.pairs, "logit_bias": first, "seed": 15}, {"bad_words": words.stops}],
        "skip_special_tokens": [{"skip_special_tokens": False, "logit_bias": ends, "min_tokens": 1}],
        "processors": [{"processors": ("favour",), "seed": 16}],
        "constraint": [{"constraint": {"walk": [list(words.common[:3])] * 4}, "seed": 17}],
    }


def parameters(setting: Setting) -> SamplingParams:
    """A setting as parameters, drawn from a fixed seed where it gives none, and short where it gives no length."""
    low = setting.get("min_tokens", 0)
    given = {"seed": 99, "max_tokens": 8, **setting}
    if given["max_tokens"] is not None and given["max_tokens"] < low:
        given["max_tokens"] = low
    return SamplingParams(**given)


def names_of_fields() -> set[str]:
    return {field.name for field in fields(SamplingParams)}


@st.composite
def mixtures(draw: st.DrawFn, words: Words) -> SamplingParams:
    """Two or three fields together; of what both set, the later wins, but that biases add up."""
    by_field = settings_of_fields(words)
    chosen = draw(st.lists(st.sampled_from(sorted(by_field)), min_size=2, max_size=3, unique=True))
    mixed: Setting = {}
    for name in chosen:
        setting = draw(st.sampled_from(by_field[name]))
        bias = {**mixed.get("logit_bias", {}), **setting.get("logit_bias", {})}
        mixed = {**mixed, **setting, "logit_bias": bias}
    return parameters(mixed)


def kinds_of_ending(outputs: list[RequestOutput]) -> set[tuple[str, str]]:
    """How answers ended: at a limit, by end-of-sequence, a stop token, a stop string."""
    endings = [answer for output in outputs for answer in output.outputs]
    return {(answer.finish_reason, type(answer.stop_reason).__name__) for answer in endings}


def assert_same(got: RequestOutput, expected: RequestOutput) -> None:
    """To the last bit, or with the same error in the same words."""
    assert (type(got.error), str(got.error)) == (type(expected.error), str(expected.error))
    assert got.outputs == expected.outputs
    assert got.prompt_logprobs == expected.prompt_logprobs
    assert (got.prompt_token_ids, got.seed) == (expected.prompt_token_ids, expected.seed)


def assert_ends_at_one_place(output: RequestOutput, params: SamplingParams, tokenizer: Tokenizer) -> None:
    assert output.error is not None or len(output.outputs) == params.n
    for answer in output.outputs:
        assert params.max_tokens is None or len(answer.token_ids) <= params.max_tokens
        assert (answer.logprobs is None) == (params.logprobs is None)
        if answer.logprobs is not None:
            assert [scored.chosen.token_id for scored in answer.logprobs] == list(answer.token_ids)
        assert answer.text == _text(answer, params, tokenizer)


def _text(answer: CompletionOutput, params: SamplingParams, tokenizer: Tokenizer) -> str:
    """What the ids say, cut where the reason says."""

    def decode(ids: Sequence[int]) -> str:
        return tokenizer.decode(ids, params.skip_special_tokens)

    whole = decode(answer.token_ids)
    if isinstance(answer.stop_reason, str):  # completed by the last token, so near the end
        end = whole.rindex(answer.stop_reason)
        return whole[: end + len(answer.stop_reason) * params.include_stop]
    by_token = answer.finish_reason == "stop" and params.constraint is None
    return decode(answer.token_ids[:-1]) if by_token and not params.include_stop else whole
