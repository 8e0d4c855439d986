"""Text while it is written: an answer's pieces are its text, whatever ends it, and streaming changes no outcome."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest
from engine_kit import Kit, Sizes, make_kit, request
from engine_texts import EMOJI, ids, tokenizer
from every_param import assert_same, mixtures
from hypothesis import given, settings
from hypothesis import strategies as st
from test_every_param import ENGINES, FAKE, batch_of_fake, kit, prompt_of

from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.engine.feed import TextFeed
from deepinfer_core.engine.request import Request

Texts = dict[tuple[int, int], list[str]]  # pieces by (request's place, answer's index)


def run_streamed(made: Kit, requests: Sequence[Request]) -> tuple[list[RequestOutput], Texts]:
    keys = [made.engine.add(replace(one, stream=True)) for one in requests]
    done: dict[int, RequestOutput] = {}
    pieces: Texts = defaultdict(list)
    while made.engine.has_unfinished():
        finished = made.engine.step()
        for piece in made.engine.take_pieces():
            assert piece.key not in done, "a piece came after the outcome"
            assert piece.text
            pieces[keys.index(piece.key), piece.index].append(piece.text)
        done |= {one.key: one.output for one in finished}
    made.assert_idle()
    return [done[key] for key in keys], pieces


def assert_pieces_are_the_texts(outputs: list[RequestOutput], pieces: Texts) -> None:
    for place, output in enumerate(outputs):
        for answer in output.outputs:
            assert "".join(pieces[place, answer.index]) == answer.text


def answers_of(requests: list[Request], sizes: Sizes) -> list[RequestOutput]:
    """Not streamed, in the same engine."""
    made = kit(sizes)
    keys = [made.engine.add(one) for one in requests]
    done: dict[int, RequestOutput] = {}
    while made.engine.has_unfinished():
        done |= {one.key: one.output for one in made.engine.step()}
    assert made.engine.take_pieces() == []
    made.engine.close()
    return [done[key] for key in keys]


@pytest.mark.parametrize("sizes", [ENGINES["three rows a step"], ENGINES["preempting"], ENGINES["without overlap"]])
def test_each_setting_is_streamed_as_it_is_answered(sizes: Sizes) -> None:
    requests = batch_of_fake()
    made = kit(sizes)
    outputs, pieces = run_streamed(made, requests)
    made.engine.close()
    assert_pieces_are_the_texts(outputs, pieces)
    for got, expected in zip(outputs, answers_of(requests, sizes), strict=True):
        assert_same(got, expected)


@settings(max_examples=20)
@given(st.lists(mixtures(FAKE), min_size=1, max_size=6))
def test_mixtures_are_streamed_as_they_are_answered(drawn: list[SamplingParams]) -> None:
    made = kit(Sizes(step_tokens=5))
    requests = [
        Request(str(place), prompt_token_ids=prompt_of(place), params=params) for place, params in enumerate(drawn)
    ]
    outputs, pieces = run_streamed(made, requests)
    made.engine.close()
    assert_pieces_are_the_texts(outputs, pieces)


def test_text_comes_while_the_answer_is_written() -> None:
    made = make_kit(tokenizer=tokenizer())
    key = made.engine.add(replace(request(ids("ab"), max_tokens=12, ignore_eos=True, seed=3), stream=True))
    came_before_the_end = 0
    while made.engine.has_unfinished():
        finished = made.engine.step()
        came_before_the_end += bool(made.engine.take_pieces()) and not finished
    assert came_before_the_end > 5
    made.engine.abort(key)  # of one that has ended: nothing happens
    assert made.engine.take_pieces() == []
    made.engine.close()


def test_an_aborted_answer_was_streamed_so_far() -> None:
    made = make_kit(tokenizer=tokenizer())
    params = SamplingParams(max_tokens=40, ignore_eos=True, seed=3, stop=["abcdefgh"])
    key = made.engine.add(Request("r", prompt_token_ids=(8, 9), params=params, stream=True))
    for _ in range(10):
        made.engine.step()
    made.engine.abort(key)
    (finished,) = made.engine.settle()
    pieces = [piece.text for piece in made.engine.take_pieces()]
    assert finished.output.outputs[0].finish_reason == "abort"
    assert "".join(pieces) == finished.output.outputs[0].text != ""
    made.engine.close()


# --- what is held back -------------------------------------------------------------------------------------------


def test_a_character_comes_when_its_last_byte_does() -> None:
    feed = TextFeed(tokenizer(), SamplingParams())
    assert [feed.push([token]) for token in EMOJI] == ["", "", "", "😀"]


def test_what_may_begin_a_stop_string_is_held_back() -> None:
    feed = TextFeed(tokenizer(), SamplingParams(stop=["abc", "z"]))
    assert feed.push(ids("xya")) == "x"
    assert feed.push(ids("b")) == "y"
    assert feed.finish("xyabq") == "abq"
