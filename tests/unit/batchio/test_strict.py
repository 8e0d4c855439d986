"""Whatever an answer holds, its line is strict JSON of one shape: a response or an error, never both."""

import json
import math

from batch_bench import TOKENIZER
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.errors import DeepInferError, GenerationError, PromptTooLong
from deepinfer_core.api.outputs import CompletionOutput, Logprob, RequestOutput, TokenLogprobs
from deepinfer_core.batchio.jsonl import decode_object, encode_line
from deepinfer_core.batchio.records import Answerer, Asked, error_record
from deepinfer_core.text.chat import read_conversation

CHAT = read_conversation({"messages": [{"role": "user", "content": "hello"}], "thinking": {"type": "disabled"}})
whole_text = st.text(max_size=8)  # line separators and control characters too
halves = st.text(st.characters(categories=["Cs"]), max_size=3)  # of surrogate pairs, as a JSON reader may give them
any_text = whole_text | halves.map(lambda text: json.loads(json.dumps(text)))
tokens = st.builds(
    Logprob,
    st.integers(0, 255),
    st.floats() | st.just(-math.inf),
    st.integers(1, 300),
    whole_text,
)
scored = st.builds(TokenLogprobs, tokens, st.lists(tokens, max_size=3).map(tuple))
scores = st.none() | st.lists(scored, max_size=3).map(tuple)
answers = st.builds(
    CompletionOutput,
    st.integers(0, 3),
    whole_text,
    st.lists(st.integers(0, 255), max_size=3).map(tuple),
    st.sampled_from(["stop", "length", "abort", "error"]),
    st.none() | st.integers(0, 255) | whole_text,
    scores,
    st.none() | st.floats(),
)
outputs = st.builds(
    RequestOutput,
    st.just("1"),
    st.none(),
    st.lists(st.integers(0, 255), max_size=3).map(tuple),
    st.lists(answers, max_size=2).map(tuple),
    seed=st.integers(0, 2**64 - 1),
    prompt_logprobs=scores,
    num_cached_tokens=st.integers(0, 3),
    warnings=st.lists(whole_text, max_size=2).map(tuple),
)
faults = st.builds(
    lambda kind, text: kind(text), st.sampled_from([GenerationError, PromptTooLong, DeepInferError]), any_text
)


def written(record):
    """The record as the strictest reader gets it: one line, no key twice, no NaN, whatever splits lines."""
    line = encode_line(record)
    assert line.count(b"\n") == 1
    assert len(line.decode().splitlines()) == 1
    if b"\\ud" not in line:
        decode_object(line[:-1])
    return json.loads(line, parse_constant=lambda name: 1 / 0)


@given(outputs, any_text, st.booleans(), st.sampled_from([TOKENIZER, None]))
def test_a_response(output, custom_id, chatty, tokenizer):
    asked = Asked(1, custom_id, CHAT if chatty else None, return_token_ids=True)
    found = written(Answerer("m", 1, tokenizer).record(asked, output))
    assert found.keys() == {"id", "custom_id", "response", "error"}
    assert found["error"] is None
    assert found["custom_id"] == custom_id
    assert found["response"]["body"]["usage"]["prompt_tokens_details"] == {"cached_tokens": output.num_cached_tokens}


@given(faults, st.none() | any_text, st.booleans())
def test_an_error(error, custom_id, of_the_engine):
    if of_the_engine:
        output = RequestOutput("1", None, (), error=error)
        record = Answerer("m", 1, TOKENIZER).record(Asked(1, custom_id), output)
    else:
        record = error_record(1, custom_id, error)
    found = written(record)
    assert found == {
        "id": "line-1",
        "custom_id": custom_id,
        "response": None,
        "error": {"code": error.code, "message": str(error), "line": 1},
    }
