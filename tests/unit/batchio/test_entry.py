"""One line as a request: both forms, OpenAI's names, and every refusal by name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.errors import RequestError
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.batchio.entry import Entry, Rejected, read_entry
from deepinfer_core.text.chat import Conversation

MESSAGES = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
NO_THINKING = {"thinking": {"type": "disabled"}}


def read(fields, **defaults):
    return read_entry(1, json.dumps(fields).encode(), defaults)


def short(**fields):
    return read({"custom_id": "a", **fields})


def completion(**body):
    return read({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body})


def chat(**body):
    body = {"messages": MESSAGES, **body}
    return read({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body})


def refusal(entry):
    assert isinstance(entry, Rejected), entry
    return str(entry.error)


def test_the_short_form():
    assert short(prompt="p") == Entry(1, "a", "p", SamplingParams(), None, False)


def test_the_long_form_of_a_completion():
    assert completion(prompt="p", model="m") == Entry(1, "a", "p", SamplingParams(), "m", False)


@pytest.mark.parametrize("entry", [short(messages=MESSAGES), chat()], ids=["short", "long"])
def test_a_chat(entry):
    assert isinstance(entry.prompt, Conversation)
    assert entry.prompt.thinking
    assert entry.params.skip_special_tokens is False


@pytest.mark.parametrize("name", ["prompt", "prompt_token_ids"])
def test_token_ids(name):
    assert short(**{name: [1, 2]}).prompt == (1, 2)


def test_sampling_parameters_by_their_own_names():
    fields = {"temperature": 0.5, "top_k": 3, "min_p": 0.1, "seed": 2**63, "n": 2, "stop": "x", "bad_words": ["y"]}
    assert short(prompt="p", **fields).params == SamplingParams(**fields)


def test_a_request_may_name_logits_processors():
    assert short(prompt="p", processors=["mine"]).params == SamplingParams(processors=("mine",))


def test_null_asks_for_nothing():
    assert completion(prompt="p", temperature=None, stop=None, suffix=None).params == SamplingParams()


def test_keys_of_logit_bias_are_strings_in_json():
    assert short(prompt="p", logit_bias={"5": -1}).params.logit_bias == {5: -1.0}


def test_max_completion_tokens_is_max_tokens():
    assert chat(max_completion_tokens=9).params.max_tokens == 9


def test_defaults_yield_to_what_is_given():
    line = {"custom_id": "a", "prompt": "p", "temperature": 0.25}
    assert read(line, temperature=0.0, max_tokens=5).params == SamplingParams(temperature=0.25, max_tokens=5)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 4}, 4),
    ],
)
def test_logprobs_of_a_chat(fields, expected):
    assert chat(**fields).params.logprobs == expected


@pytest.mark.parametrize(
    ("response_format", "constraint"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"json_schema": {"type": "object"}}),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "null"}}},
            {"json_schema": {"type": "null"}},
        ),
        ({"type": "regex", "regex": "a+"}, {"regex": "a+"}),
    ],
)
def test_response_format_is_a_constraint(response_format, constraint):
    assert completion(prompt="p", response_format=response_format).params.constraint == constraint


def test_a_chat_may_be_constrained_when_it_does_not_think():
    schema = {"type": "json_schema", "json_schema": {"schema": {}}}
    assert chat(response_format=schema, **NO_THINKING).params.constraint == {"json_schema": {}}
    assert "cannot think first" in refusal(chat(response_format=schema))


@pytest.mark.parametrize("make", [completion, short])
def test_a_cache_salt(make):
    assert make(prompt="p").cache_salt is None
    assert make(prompt="p", cache_salt="tenant 7").cache_salt == "tenant 7"
    assert make(prompt="p", cache_salt="tenant 7").params == SamplingParams()


def test_a_cache_salt_of_a_chat():
    assert chat(cache_salt="s").cache_salt == "s"


def test_labels_change_nothing():
    labels = {"model": "m", "user": "u", "metadata": {"a": "b"}, "stream": False, "echo": False, "best_of": 1}
    assert completion(prompt="p", **labels).params == SamplingParams()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"prompt": "p"}, "custom_id is missing"),
        ({"custom_id": 3, "prompt": "p"}, "custom_id is a number"),
        ({"custom_id": "", "prompt": "p"}, "not empty"),
        ({"custom_id": None, "prompt": "p"}, "custom_id is null"),
        ({"custom_id": "a"}, "give one of prompt, prompt_token_ids and messages"),
        ({"custom_id": "a", "prompt": "p", "prompt_token_ids": [1]}, "give one of"),
        ({"custom_id": "a", "body": {}}, "method is missing"),
        ({"custom_id": "a", "method": "POST", "body": {}}, "url is missing"),
        ({"custom_id": "a", "method": "POST", "url": "/v1/completions"}, "body is missing"),
        ({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": 1}, "body is a number"),
        ({"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}}, "'GET' is not allowed"),
        ({"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {}}, "is not served"),
        ({"custom_id": "a", "method": "POST", "url": [], "body": {}}, "is not served"),
        ({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {}, "bodi": 1}, "did you mean 'body'"),
    ],
)
def test_a_line_that_is_no_request(line, said):
    assert said in refusal(read(line))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"prompt": ["a", "b"]}, "each prompt on a line of its own"),
        ({"prompt": [1, True]}, "list of token ids"),
        ({"prompt": [[1]]}, "list of token ids"),
        ({"prompt_token_ids": "p"}, "list of token ids"),
        ({"prompt": 4}, "it is a number"),
        ({"prompt": "p", "temprature": 1}, "did you mean 'temperature'"),
        ({"prompt": "p", "messages": MESSAGES}, "unknown field 'messages'"),
        ({"prompt": "p", "top_logprobs": 3}, "unknown field 'top_logprobs'"),
        ({"prompt": "p", "logprobs": True}, "logprobs = True is not allowed"),
        ({"prompt": "p", "stream": True}, "stream = True is not supported"),
        ({"prompt": "p", "best_of": 2}, "best_of = 2 is not supported"),
        ({"prompt": "p", "best_of": True}, "best_of = True is not supported"),
        ({"prompt": "p", "stream": 0}, "stream = 0 is not supported"),
        ({"prompt": "p", "temperature": 10**400}, "temperature = 1000"),
        ({"prompt": "p", "n": 10**400}, "n = 1000"),
        ({"prompt": "p", "logit_bias": {"5": 10**400}}, "logit_bias[5] = 1000"),
        ({"prompt": "p", "logit_bias": {"05": 1}}, "a key of logit_bias = '05'"),
        ({"prompt": "p", "temperature": -1}, "temperature = -1"),
        ({"prompt": "p", "logit_bias": {"²": 1}}, "a key of logit_bias = '²'"),
        ({"prompt": "p", "logit_bias": {"9" * 5000: 1}}, "a key of logit_bias"),
        ({"prompt": "p", "max_tokens": 1, "max_completion_tokens": 1}, "say the same"),
        ({"prompt": "p", "constraint": {"regex": "a"}, "response_format": {"type": "text"}}, "say the same"),
        ({"prompt": "p", "response_format": {"type": "yaml"}}, "is not understood"),
        ({"prompt": "p", "response_format": "json"}, "response_format is a string"),
        ({"prompt": "p", "model": 3}, "model is a number"),
        ({"prompt": "p", "return_token_ids": 1}, "return_token_ids is a number"),
        ({"prompt": "p", "cache_salt": 7}, "cache_salt is a number: give a string that is not empty"),
        ({"prompt": "p", "cache_salt": ""}, "cache_salt is a string: give a string that is not empty"),
    ],
)
def test_a_completion_that_is_refused(body, said):
    assert said in refusal(completion(**body))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"messages": None}, "messages is missing"),
        ({"messages": []}, "Empty input messages"),
        ({"prompt": "p"}, "unknown field 'prompt'"),
        ({"top_logprobs": 3}, "needs logprobs = true"),
        ({"logprobs": 3}, "logprobs is a number"),
        ({"skip_special_tokens": True}, "unknown field"),
        ({"tool_choice": "required", "tools": TOOLS}, "tool_choice"),
    ],
)
def test_a_chat_that_is_refused(body, said):
    assert said in refusal(chat(**body))


NESTED = {
    "lists": '{"custom_id": "a", "prompt": %s1%s}',
    "surrogates": '{"custom_id": "a", "metadata": %s"\\ud83d\\ude00"%s}',
    "messages": '{"custom_id": "a", "messages": %s1%s}',
    "tools": '{"custom_id": "a", "messages": [{"role": "user", "content": "b"}], "tools": %s1%s}',
    "constraint": '{"custom_id": "a", "prompt": "p", "constraint": {"json_schema": %s1%s}}',
}


@pytest.mark.parametrize("line", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")])
def test_nesting_of_any_depth_is_an_entry_or_a_refusal(line, opening, closing):
    for depth in (*range(1, 1100, 7), 100_000):
        found = read_entry(1, (line % (opening * depth, closing * depth)).encode(), {})
        assert isinstance(found, Entry) or isinstance(found.error, RequestError)
    assert "nested too deeply" in refusal(found)


@pytest.mark.parametrize("field", ["temperature", "top_p", "seed", "n", "max_tokens", "logprobs", "top_k"])
@pytest.mark.parametrize("digits", [30, 400, 4000])
def test_a_number_of_any_size_is_an_entry_or_a_refusal(field, digits):
    found = read_entry(1, f'{{"custom_id": "a", "prompt": "p", "{field}": {"9" * digits}}}'.encode(), {})
    assert isinstance(found, Rejected)
    assert len(str(found.error)) < 1000


@pytest.mark.parametrize(
    "fields",
    [{name: "x" * 5000} for name in ("method", "response_format", "best_of", "temperature", "x" * 5000)]
    + [{"method": "POST", "url": "x" * 5000, "body": {}}, {"method": "POST", "url": 1, "body": 1, "x" * 5000: 1}],
)
def test_a_refusal_quotes_a_little_of_what_it_refuses(fields):
    assert len(refusal(read({"custom_id": "a", "prompt": "p", **fields}))) < 1500


def test_a_line_that_is_too_long():
    assert "longer than" in refusal(read_entry(7, None, {}))


def test_a_rejected_line_keeps_its_place_and_name():
    rejected = read({"custom_id": "name", "prompt": 1})
    assert (rejected.line, rejected.custom_id) == (1, "name")
    rejected = read({"custom_id": "name", "prompt": "\ud83d"})
    assert (rejected.line, rejected.custom_id) == (1, "name")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(MESSAGES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = [
    *("custom_id", "method", "url", "body", "prompt", "prompt_token_ids", "messages", "model", "stream", "tools"),
    *("tool_choice", "response_format", "thinking", "reasoning_effort", "logprobs", "top_logprobs", "max_tokens"),
    *("temperature", "n", "seed", "stop", "logit_bias", "allowed_token_ids", "bad_words", "constraint", "min_tokens"),
]


@given(st.dictionaries(st.sampled_from(NAMES), json_values, max_size=5), st.booleans())
def test_whatever_a_line_says_it_is_an_entry_or_a_refusal(fields, chatty):
    fields |= {"custom_id": "a"} | ({"messages": MESSAGES} if chatty else {})
    found = read(fields)
    assert isinstance(found, Entry) or (isinstance(found, Rejected) and isinstance(found.error, RequestError))


@given(st.binary(max_size=30))
def test_whatever_the_bytes_are(raw):
    assert isinstance(read_entry(1, raw, {}), Rejected)
