"""From what a caller passes as prompts to requests: every shape that says which prompt is which, and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deepinfer_core.api.errors import RequestError
from deepinfer_core.api.prompts import Refused, make_requests
from deepinfer_core.engine.request import Request


def prompts_of(prompts: Any) -> list[Any]:
    """Text or ids of each request; the error's text of one that was refused."""
    made = make_requests(prompts, None)
    return [str(one.error) if isinstance(one, Refused) else one.prompt or one.prompt_token_ids for one in made]


@pytest.mark.parametrize(
    "prompts",
    [
        [3, 4],
        (3, 4),
        [[3, 4]],
        ((3, 4),),
        [np.array([3, 4])],
        np.array([3, 4]),
        np.array([[3, 4]], dtype=np.uint16),
        torch.tensor([3, 4]),
        torch.tensor([[3, 4]]),
        [np.int64(3), 4],
        range(3, 5),
        [range(3, 5)],
        (ids for ids in [[3, 4]]),
    ],
)
def test_token_ids_in_many_shapes(prompts: Any) -> None:
    assert prompts_of(prompts) == [(3, 4)]


def test_rows_of_an_array_are_prompts() -> None:
    assert prompts_of(np.array([[3], [4]])) == [(3,), (4,)]
    assert prompts_of(torch.tensor([[3, 4], [5, 6]])) == [(3, 4), (5, 6)]


def test_texts_and_ids_may_be_mixed() -> None:
    assert prompts_of(["a", [3, 4], "b"]) == ["a", (3, 4), "b"]
    assert prompts_of("abc") == ["abc"]
    assert prompts_of([]) == []


@pytest.mark.parametrize(
    "prompts", [{"prompt": "a"}, {"prompt_token_ids": [3]}, {"a", "b"}, frozenset({3}), 5, None, 1.5]
)
def test_what_has_no_order_is_no_list_of_prompts(prompts: Any) -> None:
    with pytest.raises(RequestError, match="^prompts is a .*: give text, token ids, or a list of them"):
        make_requests(prompts, None)


@pytest.mark.parametrize("prompt", [{"prompt": "a"}, {3, 4}, b"ab", None, 1.5, np.float32(3)])
def test_a_prompt_of_another_kind_is_refused_alone(prompt: Any) -> None:
    first, refused, last = prompts_of(["a", prompt, "b"])
    assert (first, last) == ("a", "b")
    assert refused.startswith("the prompt is a ")


@pytest.mark.parametrize("item", [True, False, 1.0, "5", None, [3], np.bool_(True), np.array([4]), torch.tensor([[4]])])
def test_what_is_no_token_id_is_named_with_its_place(item: Any) -> None:
    assert prompts_of(["a", [3, item]])[1].startswith("prompt token 1 is ")


@pytest.mark.parametrize("prompts", [[True, False], [[True]]])
def test_true_and_false_are_no_token_ids(prompts: Any) -> None:
    assert all("prompt token 0 is True" in text for text in prompts_of(prompts))


def test_parameters_that_are_none_of_ours_are_refused_alone() -> None:
    params: list[Any] = [{"n": 10**5000}, 7, "ab", {5: 1}, {"temperature": 10**400}, None]
    *refused, good = make_requests(["a"] * len(params), params)
    assert all(isinstance(one, Refused) for one in refused)
    assert isinstance(good, Request)
