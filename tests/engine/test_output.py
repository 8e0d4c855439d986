"""Where answers end: stop strings, stop tokens, limits; text, ids and logprobs together."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any

import numpy as np
import pytest
from engine_texts import EMOJI, EOS, TOOL, ids, tokenizer
from fake_model import INFO
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.outputs import CompletionOutput
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.engine.admission import Admission
from deepinfer_core.engine.output import OutputWriter, extend
from deepinfer_core.engine.request import Request
from deepinfer_core.engine.sequence import Ending, LiveRequest, Sequence, TokenScore
from deepinfer_core.interfaces.scheduler import FinishCode

STOP, LENGTH, NONE = FinishCode.STOP, FinishCode.LENGTH, FinishCode.NONE


def new_sequence(**params: Any) -> Sequence:
    admission = Admission(INFO, tokenizer(), {}, {}, max_length=4096, decoder_rows=0, seed=0)
    asked = SamplingParams(**{"max_tokens": 4000, **params})
    admitted = admission.admit(Request("r", prompt_token_ids=(2,), params=asked))
    return Sequence(0, 0, LiveRequest(0, admitted, 0.0), tokenizer(), None)


def score(token: int) -> TokenScore:
    return TokenScore(-0.5 * token, 1, np.array([token]), np.array([-0.5 * token], dtype=np.float32))


def committed(sequence: Sequence, tokens: Items[int]) -> tuple[list[int], FinishCode]:
    """What the scheduler commits of a step's tokens: up to a stop token that counts, or the limit."""
    admitted, kept = sequence.owner.admitted, []
    for token in tokens:
        kept.append(token)
        count = len(sequence.ids) + len(kept)
        if token in admitted.stop_tokens and count > admitted.params.min_tokens:
            return kept, STOP
        if count == admitted.max_new_tokens:
            return kept, LENGTH
    return kept, NONE


def answer(tokens: Items[int], step: int = 1, **params: Any) -> CompletionOutput:
    """The answer when the model says `tokens`, `step` of them a step, and then is aborted."""
    sequence = new_sequence(**params)
    for start in range(0, len(tokens), step):
        taken, code = committed(sequence, tokens[start : start + step])
        scores = None if sequence.scores is None else [score(token) for token in taken]
        ending = extend(sequence, taken, scores, code)
        if ending is not None:
            return OutputWriter(tokenizer()).completion(sequence, ending)
    return OutputWriter(tokenizer()).completion(sequence, Ending("abort"))


def test_the_text_ends_before_the_stop_string() -> None:
    got = answer(ids("xyabcz"), stop="ya")
    assert (got.text, got.finish_reason, got.stop_reason) == ("x", "stop", "ya")


def test_the_stop_string_is_kept_when_asked_for() -> None:
    assert answer(ids("xyzz"), stop="yz", include_stop=True).text == "xyz"


@pytest.mark.parametrize(
    ("said", "stops", "text", "kept", "reason"),
    [
        ("xyz", ["xyz"], "", "xyz", "xyz"),  # the whole answer
        ("xyz", ["xyzz"], "xyz", "xyz", None),  # longer than the answer
        ("xabcd", ["bcd", "abc"], "x", "xabc", "abc"),  # overlapping: what is completed first
        ("xabcd", ["abcd", "bc"], "xa", "xabc", "bc"),
        ("xab", ["b", "ab"], "x", "xab", "ab"),  # completed together: the longest
        ("xab", ["ab", "ab", "b"], "x", "xab", "ab"),  # given twice
        ("aaaa", ["aa"], "", "aa", "aa"),
        ("x ab ab", [" ab"], "x", "x ab", " ab"),
        ("x1", ["1", "\ud7ff", "e\u0301"], "x", "x1", "1"),
    ],
)
@pytest.mark.parametrize("include", [False, True])
def test_of_several_stops_the_one_that_is_completed_first_ends_the_text(
    said: str, stops: list[str], text: str, kept: str, reason: str | None, include: bool
) -> None:
    got = answer(ids(said), stop=stops, include_stop=include, max_tokens=len(ids(said)))
    assert (got.text, got.stop_reason) == (kept if include else text, reason)
    assert got.finish_reason == ("length" if reason is None else "stop")


@pytest.mark.parametrize(
    ("low", "text"), [(0, "xy"), (1, "xy"), (2, "xyxy"), (3, "xyxy"), (4, "xyxyxy"), (6, "xyxyxy")]
)
def test_a_stop_before_min_tokens_is_text_that_is_kept(low: int, text: str) -> None:
    got = answer(ids("xyxyxy"), stop="xy", min_tokens=low, max_tokens=6, include_stop=True)
    assert got.text == text
    assert answer(ids("xyxyxy"), stop="xy", min_tokens=low, max_tokens=6).text == (text[:-2] if low < 6 else text)


def test_ids_and_logprobs_end_with_the_token_that_completed_the_stop() -> None:
    tokens = ids("x y abz")  # " ab" is one token: the stop ends inside it
    got = answer(tokens, stop="y a", logprobs=1)
    assert got.text == "x "
    assert list(got.token_ids) == tokens[: tokens.index(36) + 1]
    assert got.logprobs is not None
    assert len(got.logprobs) == len(got.token_ids)
    assert got.cumulative_logprob == pytest.approx(sum(-0.5 * token for token in got.token_ids))


def test_a_stop_that_did_not_count_stays_in_the_text() -> None:
    """min_tokens = 6: the stop after two tokens is text, the one after nine ends the answer."""
    got = answer(ids("xyzzzzzxyk"), stop="xy", min_tokens=6)
    assert (got.text, len(got.token_ids)) == ("xyzzzzz", 9)


def test_a_stop_that_never_comes_leaves_the_text_alone() -> None:
    got = answer(ids("xyz"), stop="q", max_tokens=3)
    assert (got.text, got.finish_reason, got.stop_reason) == ("xyz", "length", None)


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(
    ("last", "params", "reason", "spelt"),
    [
        (EOS, {}, None, "<eos>"),
        (TOOL, {"stop_token_ids": (TOOL,)}, TOOL, "<tool>"),
        (40, {"stop_token_ids": (40,)}, 40, "2"),
    ],
)
@pytest.mark.parametrize("stop", [(), ("never",)])
def test_a_stop_token_ends_ids_and_its_text_only_when_included(
    last: int, params: dict[str, Any], reason: int | None, spelt: str, skip: bool, include: bool, stop: tuple[str, ...]
) -> None:
    got = answer([*ids("xy"), last], include_stop=include, skip_special_tokens=skip, logprobs=0, stop=stop, **params)
    shown = include and not (skip and spelt.startswith("<"))
    assert got.text == "xy" + (spelt if shown else "")
    assert got.token_ids[-1] == last
    assert (got.finish_reason, got.stop_reason) == ("stop", reason)
    assert got.logprobs is not None
    assert len(got.logprobs) == len(got.token_ids)


def test_no_stop_token_counts_before_min_tokens() -> None:
    got = answer([2, EOS, 3, EOS, 4], min_tokens=2)
    assert got.token_ids == (2, EOS, 3, EOS)


def test_end_of_sequence_can_be_ignored() -> None:
    assert answer([2, EOS, 3], ignore_eos=True, max_tokens=3).finish_reason == "length"


@given(
    st.lists(st.integers(0, 58), min_size=1, max_size=40),
    st.lists(st.text("abcx ", min_size=1, max_size=3), max_size=3),
    st.integers(0, 8),
    st.integers(1, 40),
    st.sampled_from([(), (40,), (3, 5)]),
)
def test_tokens_that_come_together_end_an_answer_like_tokens_that_come_alone(
    tokens: list[int], stop: list[str], low: int, limit: int, stop_ids: tuple[int, ...]
) -> None:
    params = {
        "stop": stop,
        "min_tokens": min(low, limit),
        "max_tokens": limit,
        "stop_token_ids": stop_ids,
        "logprobs": 1,
    }
    one_by_one = answer(tokens, **params)
    for step in (2, 3, 7, 40):
        assert answer(tokens, step, **params) == one_by_one


def test_a_stop_within_the_budget_beats_the_limit() -> None:
    assert answer([10, 11, 40, 20, 21], step=6, stop_token_ids=(40,), max_tokens=5).token_ids == (10, 11, 40)
    assert answer([10, 11, 20, 40, 21], step=6, stop_token_ids=(40,), max_tokens=3).finish_reason == "length"


@given(st.lists(st.integers(0, 58), max_size=30), st.booleans())
def test_without_a_stop_the_text_is_the_decoding_of_all_ids(tokens: list[int], skip: bool) -> None:
    expected = tokenizer().decode(tokens, skip)
    params = {"ignore_eos": True, "skip_special_tokens": skip}
    assert answer(tokens, **params).text == expected
    assert answer(tokens, stop="\0", **params).text == expected


def test_a_character_cut_short_may_be_the_stop() -> None:
    """Half an emoji is U+FFFD at the end of the answer, as one-shot decoding says."""
    assert answer([2, *EMOJI[:2]], max_tokens=3, stop="q").text == "a\ufffd"
    assert answer([2, *EMOJI[:2]], max_tokens=3, stop="\ufffd").text == "a"
    assert answer([2, *EMOJI], max_tokens=5, stop="\ufffd").text == "a😀"


def test_two_thousand_bytes_that_are_no_character() -> None:
    got = answer([EMOJI[2]] * 2000, max_tokens=2000, stop="q")
    assert got.text == "\ufffd" * 2000
