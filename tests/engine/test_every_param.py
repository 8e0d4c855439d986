"""Every field of SamplingParams, alone and mixed, in one batch: each request's outcome is its outcome alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from engine_kit import EXACT_REPLAY, Kit, Sizes, make_kit, run
from engine_texts import END, EOS, VOCAB, tokenizer
from every_param import (
    KINDS_OF_ENDING,
    Setting,
    Words,
    assert_ends_at_one_place,
    assert_same,
    kinds_of_ending,
    mixtures,
    names_of_fields,
    parameters,
    settings_of_fields,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from test_constraints import WalkEngine

from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.engine.request import Request
from deepinfer_core.interfaces.sampler import SampledRows

FAKE = Words(
    VOCAB, (EOS, END), (2, 3, 4, 5, 20, 21, 29, 30, 38, 39, 40, 41), tuple("abcde12;"), ("ab", "bc", "abd", "ca")
)
ENGINES = {
    "a row a step": Sizes(slots=4, step_tokens=1),  # slow: of every third request only
    "three rows a step": Sizes(step_tokens=3),
    "without overlap": Sizes(overlap=False),
    "sharing prefixes": Sizes(slots=5, blocks=13, step_tokens=16, prefix=EXACT_REPLAY),
    "preempting": Sizes(slots=5, blocks=11, step_tokens=16),
    "preempting without overlap": Sizes(slots=5, blocks=9, step_tokens=16, overlap=False),
}
ROOMY = Sizes(slots=8)


class Favour:
    """A plugin's stage: lifts the token that is as many places on as tokens were generated."""

    def apply(self, logits: torch.Tensor, rows: SampledRows) -> torch.Tensor:
        token = 20 + rows.generated % 9
        return logits.scatter_add(1, token.long()[:, None], torch.full((len(token), 1), 2.0))


def kit(sizes: Sizes) -> Kit:
    return make_kit(sizes, tokenizer=tokenizer(), constraints={"walk": WalkEngine()}, processors={"favour": Favour()})


def answer_together(sizes: Sizes, requests: list[Request]) -> list[RequestOutput]:
    made = kit(sizes)
    outputs = run(made, requests)
    made.assert_idle()
    assert sizes.blocks == ROOMY.blocks or len(requests) < 20 or made.engine.stats().preemptions > 0
    made.engine.close()
    return outputs


class Alone:
    """Outcomes of requests in an engine that serves one at a time; each is run once."""

    def __init__(self) -> None:
        self._kit = kit(ROOMY)
        self._known: dict[tuple[Any, ...], RequestOutput] = {}

    def __call__(self, one: Request) -> RequestOutput:
        key = (one.prompt_token_ids, repr(one.params))
        if key not in self._known:
            (self._known[key],) = run(self._kit, [one])
        return self._known[key]

    def close(self) -> None:
        self._kit.assert_idle()
        self._kit.engine.close()


@pytest.fixture(scope="module")
def alone() -> Iterator[Alone]:
    made = Alone()
    yield made
    made.close()


def prompt_of(place: int) -> tuple[int, ...]:
    """Of 1 to 13 tokens, no two alike."""
    return tuple((5 * place + 3 * i + i * i) % 50 + 8 for i in range(1 + place * 7 % 13))


def of_all_fields(words: Words) -> list[Setting]:
    return [setting for listed in settings_of_fields(words).values() for setting in listed]


def test_no_field_is_left_out() -> None:
    by_field = settings_of_fields(FAKE)
    assert by_field.keys() == names_of_fields()
    assert all(name in setting for name, listed in by_field.items() for setting in listed)


def batch_of_fake() -> list[Request]:
    return [
        Request(str(place), prompt_token_ids=prompt_of(place), params=parameters(setting))
        for place, setting in enumerate(of_all_fields(FAKE))
    ]


def test_the_settings_end_answers_in_every_way(alone: Alone) -> None:
    assert kinds_of_ending([alone(one) for one in batch_of_fake()]) == KINDS_OF_ENDING


@pytest.mark.parametrize("engine", ENGINES)
def test_each_setting_in_one_batch_equals_its_solo_run(alone: Alone, engine: str) -> None:
    requests = batch_of_fake()[:: 3 if ENGINES[engine].step_tokens == 1 else 1]
    outputs = answer_together(ENGINES[engine], requests)
    for one, output in zip(requests, outputs, strict=True):
        assert output.error is None
        assert_same(output, alone(one))
        assert_ends_at_one_place(output, one.params, tokenizer())


@settings(max_examples=20)
@given(
    st.sampled_from(sorted(ENGINES)),
    st.lists(st.tuples(st.lists(st.integers(8, 58), min_size=1, max_size=20), mixtures(FAKE)), min_size=2, max_size=5),
)
def test_mixtures_in_one_batch_equal_their_solo_runs(
    alone: Alone, engine: str, asked: list[tuple[list[int], SamplingParams]]
) -> None:
    requests = [Request("r", prompt_token_ids=tuple(prompt), params=params) for prompt, params in asked]
    for one, output in zip(requests, answer_together(ENGINES[engine], requests), strict=True):
        assert_same(output, alone(one))
        assert_ends_at_one_place(output, one.params, tokenizer())
