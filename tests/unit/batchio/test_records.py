"""Response bodies in OpenAI's shapes."""

import json
import math

import made_tokenizers
import pytest

from deepinfer_core.api.errors import PromptTooLong
from deepinfer_core.api.outputs import CompletionOutput, Logprob, RequestOutput, TokenLogprobs
from deepinfer_core.batchio.jsonl import encode_line
from deepinfer_core.batchio.records import Answerer, Asked, error_record, line_of
from deepinfer_core.text.chat import read_conversation

TOKENIZER = made_tokenizers.byte_level()
CHAT = read_conversation({"messages": [{"role": "user", "content": "hello"}]})


def answerer(tokenizer=TOKENIZER):
    return Answerer(model="m", created=1000, tokenizer=tokenizer)


def output(*answers, **fields):
    return RequestOutput("3", "p", (1, 2), answers, seed=5, **fields)


def answer(text, index=0, finish_reason="stop", **fields):
    return CompletionOutput(index, text, tuple(text.encode()), finish_reason, **fields)


def token(text, logprob=-0.5, rank=1, token_id=None):
    return Logprob(ord(text) if token_id is None else token_id, logprob, rank, text)


def choice(asked, *answers):
    return answerer().body(asked, output(*answers))["choices"][0]


def test_a_completion():
    record = answerer().record(Asked(3, "id"), output(answer("hi")))
    assert record == {
        "id": "line-3",
        "custom_id": "id",
        "response": {
            "status_code": 200,
            "request_id": "line-3",
            "body": {
                "id": "cmpl-3",
                "object": "text_completion",
                "created": 1000,
                "model": "m",
                "choices": [{"index": 0, "text": "hi", "finish_reason": "stop", "logprobs": None, "stop_reason": None}],
                "usage": {
                    "prompt_tokens": 2,
                    "completion_tokens": 2,
                    "total_tokens": 4,
                    "prompt_tokens_details": {"cached_tokens": 0},
                },
                "seed": 5,
                "prefill": "bounded",
            },
        },
        "error": None,
    }


def test_usage_counts_every_answer():
    body = answerer().body(Asked(3, "id"), output(answer("hi"), answer("you", 1)))
    assert body["usage"]["completion_tokens"] == 5
    assert [one["index"] for one in body["choices"]] == [0, 1]


def test_usage_tells_what_was_found_in_the_cache():
    body = answerer().body(Asked(3, "id"), output(answer("hi"), num_cached_tokens=2, replay="bounded"))
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert body["usage"]["prompt_tokens"] == 2
    assert body["replay"] == "bounded"
    assert "replay" not in answerer().body(Asked(3, "id"), output(answer("hi")))


def test_an_error_has_no_response():
    record = answerer().record(Asked(3, "id"), output(error=PromptTooLong("too long")))
    assert record == {
        "id": "line-3",
        "custom_id": "id",
        "response": None,
        "error": {"code": "prompt_too_long", "message": "too long", "line": 3},
    }


def test_a_chat_message():
    found = choice(Asked(3, "id", CHAT), answer("hm</think>hi"))
    assert found["message"] == {"role": "assistant", "content": "hi", "reasoning_content": "hm"}
    assert found["finish_reason"] == "stop"


def test_the_kind_of_body_says_chat():
    assert answerer().body(Asked(3, "id", CHAT), output(answer("")))["object"] == "chat.completion"


def test_tool_calls_have_ids_of_their_own_that_do_not_change():
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    asked = Asked(3, "id", read_conversation({"messages": [{"role": "user", "content": "a"}], "tools": tools}))
    call = '<｜DSML｜ invoke name="look">\n\n</｜DSML｜ invoke>\n'
    text = f"</think>\n\n<｜DSML｜ calls>\n{call}{call}</｜DSML｜ calls>"
    found = choice(asked, answer(text))
    assert [one["id"] for one in found["message"]["tool_calls"]] == ["call-3-0-0", "call-3-0-1"]
    assert found["finish_reason"] == "tool_calls"
    assert choice(asked, answer(text)) == found


@pytest.mark.parametrize("reason", ["abort", "length"])
def test_the_finish_reason_of_a_chat_that_did_not_stop(reason):
    assert choice(Asked(3, "id", CHAT), answer("hm", finish_reason=reason))["finish_reason"] == reason


def test_a_stop_string_is_told():
    assert choice(Asked(3, "id"), answer("hi", stop_reason="\n"))["stop_reason"] == "\n"


def test_ids_only_where_asked_or_where_there_is_no_text():
    assert "token_ids" not in choice(Asked(3, "id"), answer("hi"))
    assert choice(Asked(3, "id", return_token_ids=True), answer("hi"))["token_ids"] == [104, 105]
    without = answerer(tokenizer=None).body(Asked(3, "id"), output(answer("hi")))
    assert without["choices"][0]["token_ids"] == [104, 105]


def test_logprobs_of_a_completion():
    top = (token("h"), token("x", -2.0, 2))
    logprobs = (TokenLogprobs(token("h"), top), TokenLogprobs(token("i")))
    assert choice(Asked(3, "id"), answer("hi", logprobs=logprobs))["logprobs"] == {
        "tokens": ["h", "i"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"h": -0.5, "x": -2.0}, {}],
        "text_offset": [0, 1],
    }


def test_offsets_count_whole_characters():
    parts = [TokenLogprobs(token("\ufffd", token_id=byte)) for byte in "é!".encode()]
    assert choice(Asked(3, "id"), answer("é!", logprobs=tuple(parts)))["logprobs"]["text_offset"] == [0, 0, 1]


def test_alternatives_of_the_same_text_are_all_kept():
    top = (token("\ufffd", -1.0, 1, token_id=0xE4), token("\ufffd", -2.0, 2, token_id=0xE5))
    found = choice(Asked(3, "id"), answer("a", logprobs=(TokenLogprobs(token("a"), top),)))
    assert found["logprobs"]["top_logprobs"] == [{"\ufffd": -1.0, "token_id:229": -2.0}]


def test_logprobs_of_a_chat():
    logprobs = (TokenLogprobs(token("é", token_id=0xC3), (token("a"),)),)
    found = choice(Asked(3, "id", CHAT), answer("é", logprobs=logprobs))
    assert found["logprobs"] == {
        "content": [
            {
                "token": "é",
                "logprob": -0.5,
                "bytes": [0xC3],
                "top_logprobs": [{"token": "a", "logprob": -0.5, "bytes": [97]}],
            }
        ]
    }


@pytest.mark.parametrize("conversation", [None, CHAT], ids=["completion", "chat"])
def test_a_logprob_that_json_cannot_hold(conversation):
    logprobs = (TokenLogprobs(token("a", -math.inf), (token("b"), token("c", -math.inf, 2), token("d", math.nan, 3))),)
    line = encode_line(answerer().record(Asked(3, "id", conversation), output(answer("a", logprobs=logprobs))))
    assert b"null" in line
    assert b'"c"' not in line
    assert b'"d"' not in line


def test_prompt_logprobs():
    scores = (None, TokenLogprobs(token("b"), (token("b"),)))
    body = answerer().body(Asked(3, "id"), output(answer("a"), prompt_logprobs=scores))
    entry = {"token_id": 98, "token": "b", "logprob": -0.5, "rank": 1}
    assert body["prompt_logprobs"] == [None, entry | {"top": [entry]}]


def test_warnings_are_told():
    assert answerer().body(Asked(3, "id"), output(answer("a"), warnings=("w",)))["warnings"] == ["w"]


def test_the_line_of_a_record():
    record = json.loads(encode_line(error_record(12, None, PromptTooLong("x"))))
    assert line_of(record) == 12


@pytest.mark.parametrize("record", [None, 3, [], {}, {"id": 3}, {"id": "batch-3"}, {"id": "line-x"}, {"id": "line--1"}])
def test_what_is_no_record_has_no_line(record):
    assert line_of(record) is None
