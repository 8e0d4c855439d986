"""SamplingParams: what each field may be, and that a refusal names the field, the value and what is allowed."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.errors import MAX_SHOWN, RequestError, shown
from deepinfer_core.api.params import MAX_BAD_WORDS, MAX_LOGPROBS, MAX_N, MAX_STOP_STRINGS, SamplingParams
from deepinfer_core.batchio.jsonl import encode_line
from deepinfer_core.batchio.records import error_record

FLOATS = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
INTEGERS = ("n", "max_tokens", "min_tokens", "top_k", "seed", "logprobs", "prompt_logprobs")
SWITCHES = ("include_stop", "ignore_eos", "skip_special_tokens")
LISTS = ("stop_token_ids", "allowed_token_ids", "bad_words", "processors")
HUGE = 10**5000  # Python refuses to write it


def refusal(**params: Any) -> str:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**params)
    text = str(caught.value)
    line = encode_line(error_record(1, "a", caught.value))  # whatever it quotes, the record is strict JSON
    assert json.loads(line, parse_constant=pytest.fail)["error"]["message"] == text
    return text


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, -3, 2e308, 10**400, HUGE, True, "1", None, [1.0], 1j],
    ids=shown,
)
def test_a_number_is_finite_and_within_its_limits(name: str, value: Any) -> None:
    assert refusal(**{name: value}).startswith(f"{name} = ")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("temperature", (0, 0.0, -0.0, 1e-12, 100), (-1e-9, 100.1)),
        ("top_p", (1e-9, 1), (0, 0.0, 1.5, -1)),
        ("min_p", (0, -0.0, 1), (-1e-9, 1.5)),
        ("repetition_penalty", (5e-324, 100), (0, -1, 100.5)),
        ("presence_penalty", (-2, 2), (-2.1, 2.1)),
        ("frequency_penalty", (-2, 2), (-2.1, 2.1)),
        ("n", (1, MAX_N), (0, -1, MAX_N + 1, 5_000_000)),
        ("max_tokens", (0, 1, None, 2**31 - 1), (-1, 2**31, 2**40)),
        ("top_k", (-1, 0, 1, 9_999_999), (-2, 2**31)),
        ("seed", (0, 2**63, 2**64 - 1, None), (-1, 2**64)),
        ("logprobs", (0, MAX_LOGPROBS, None), (-1, MAX_LOGPROBS + 1)),
        ("prompt_logprobs", (0, MAX_LOGPROBS, None), (-1, MAX_LOGPROBS + 1)),
    ],
)
def test_limits_belong_to_what_is_allowed(name: str, good: tuple[Any, ...], bad: tuple[Any, ...]) -> None:
    for value in good:
        assert getattr(SamplingParams(**{name: value}), name) == value
    for value in bad:
        assert refusal(**{name: value}).startswith(f"{name} = {value}")


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("value", [1.0, 1.5, True, False, "1", math.nan, HUGE, [1], {}], ids=shown)
def test_a_whole_number_is_no_other_kind_of_number(name: str, value: Any) -> None:
    assert refusal(**{name: value}).startswith(f"{name} = ")


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", [0, 1, None, "true", 0.0])
def test_a_switch_is_true_or_false(name: str, value: Any) -> None:
    assert refusal(**{name: value}).endswith("give true or false")


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("value", ["12", 5, {1: 2}, {1, 2}, True])
def test_a_list_is_no_other_collection(name: str, value: Any) -> None:
    assert refusal(**{name: value}).endswith("give a list")


@pytest.mark.parametrize("name", ["stop_token_ids", "allowed_token_ids"])
@pytest.mark.parametrize("value", [-1, 2**31, 2**40, HUGE, True, 1.0, "1", None], ids=shown)
def test_an_id_in_a_list_is_a_whole_number(name: str, value: Any) -> None:
    assert refusal(**{name: [5, value]}).startswith(f"an entry of {name} = ")


@pytest.mark.parametrize("name", ["stop", "bad_words"])
@pytest.mark.parametrize("value", ["", None, 5, b"a", ["a"], "x" * 4097], ids=shown)
def test_a_text_in_a_list_is_some_text(name: str, value: Any) -> None:
    assert refusal(**{name: ["a", value]}).startswith(f"an entry of {name} = ")


def test_numbers_of_numpy_are_numbers() -> None:
    params = SamplingParams(
        seed=np.uint64(2**64 - 1),
        max_tokens=np.int32(5),
        temperature=np.float32(0.5),
        stop_token_ids=[np.int64(3)],
        logit_bias={np.int16(4): np.float16(1.5)},
    )
    plain = SamplingParams(seed=2**64 - 1, max_tokens=5, temperature=0.5, stop_token_ids=[3], logit_bias={4: 1.5})
    assert repr(params) == repr(plain)
    assert "seed" in refusal(seed=np.float64(1.0))
    assert "n = " in refusal(n=np.bool_(True))
    assert "temperature" in refusal(temperature=np.float32(np.nan))


@pytest.mark.parametrize("value", [None, [], ()])
def test_no_stop_is_no_stop(value: Any) -> None:
    assert SamplingParams(stop=value) == SamplingParams()


def test_one_stop_needs_no_list() -> None:
    assert SamplingParams(stop="ab").stop == ("ab",)
    assert refusal(stop="").startswith("an entry of stop = ''")


@pytest.mark.parametrize(("name", "most"), [("stop", MAX_STOP_STRINGS), ("bad_words", MAX_BAD_WORDS)])
def test_lists_of_texts_have_a_limit(name: str, most: int) -> None:
    assert len(getattr(SamplingParams(**{name: ["a"] * most}), name)) == most
    assert refusal(**{name: ["a"] * 500_000}) == f"{name} has 500000 entries: give at most {most}"


@pytest.mark.parametrize("value", [["a", "a"], [5], [["a"]], [None]])
def test_processors_are_names_each_once(value: Any) -> None:
    assert refusal(processors=value).startswith("processors = ")


def test_a_long_list_is_checked_in_one_pass() -> None:
    """Would take minutes if each entry were looked for among those before it."""
    many = range(200_000)
    params = SamplingParams(processors=[str(i) for i in many], stop_token_ids=many, allowed_token_ids=many)
    assert len(params.processors) == len(params.stop_token_ids) == len(params.allowed_token_ids or ()) == 200_000


def test_min_tokens_may_not_exceed_max_tokens() -> None:
    assert SamplingParams(min_tokens=5, max_tokens=5).min_tokens == 5
    assert SamplingParams(min_tokens=500, max_tokens=None).min_tokens == 500
    assert refusal(min_tokens=6, max_tokens=5) == "min_tokens = 6 is not allowed: it may not exceed max_tokens = 5"


def test_keys_of_logit_bias_may_be_numbers_or_their_text() -> None:
    assert SamplingParams(logit_bias={5: 1, "0": -2, "10": 0.5}).logit_bias == {5: 1.0, 0: -2.0, 10: 0.5}


@pytest.mark.parametrize(
    "key", ["05", "+5", " 5", "5 ", "5.0", "1e1", "-1", "٣", "²", "", "9" * 40, 5.0, True, None, HUGE], ids=shown
)
def test_keys_of_logit_bias_have_one_spelling(key: Any) -> None:
    assert refusal(logit_bias={key: 1.0}).startswith("a key of logit_bias = ")


def test_a_token_is_biased_once() -> None:
    assert refusal(logit_bias={5: 1.0, "5": 2.0}) == "logit_bias names token 5 twice: name it once"


@pytest.mark.parametrize("value", [math.nan, math.inf, 100.5, -101, 10**400, True, "1", None], ids=shown)
def test_a_bias_is_a_number_within_100(value: Any) -> None:
    assert refusal(logit_bias={7: value}).startswith("logit_bias[7] = ")


@pytest.mark.parametrize("value", [[1], "5", 5, {1, 2}])
def test_logit_bias_is_a_mapping(value: Any) -> None:
    assert "give a mapping" in refusal(logit_bias=value)


def test_nothing_allowed_is_refused() -> None:
    assert "allows nothing" in refusal(allowed_token_ids=[])
    assert SamplingParams(allowed_token_ids=None).allowed_token_ids is None


@pytest.mark.parametrize("name", ["temprature", 5, None, "ä" * 1000], ids=shown)
def test_an_unknown_name_is_refused(name: Any) -> None:
    with pytest.raises(RequestError, match="unknown sampling parameter"):
        SamplingParams.from_dict({name: 1})


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "constraint", "logit_bias", "stop"])
def test_a_refusal_is_short_whatever_it_refuses(name: str) -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    for value in ("x" * 100_000, list(range(100_000)), HUGE, [HUGE], deep):
        assert len(refusal(**{name: value})) < 2 * MAX_SHOWN


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*FLOATS, *INTEGERS, *SWITCHES, *LISTS, "stop", "logit_bias"]), VALUES))
def test_whatever_is_given_is_taken_or_refused(values: dict[str, Any]) -> None:
    try:
        params = SamplingParams.from_dict(values)
    except RequestError:
        return
    assert SamplingParams.from_dict({name: getattr(params, name) for name in values}) == params
