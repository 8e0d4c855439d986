"""Chat prompts and answers, against the format's own text."""

import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.errors import GenerationError, PromptTooLong, RequestError, UnsupportedRequest
from deepinfer_core.text.chat import AnswerReader, ChatFormat, ToolCall, read_conversation

HELLO = {"messages": [{"role": "user", "content": "hello"}]}
PLAIN = {**HELLO, "thinking": {"type": "disabled"}}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALL = (
    "\n\n<｜DSML｜ calls>\n"
    '<｜DSML｜ invoke name="look">\n'
    '<｜DSML｜ parameter name="at" string="true">sea</｜DSML｜ parameter>\n'
    "</｜DSML｜ invoke>\n"
    "</｜DSML｜ calls>"
)


def prompt(tokenizer, fields):
    ids = ChatFormat(tokenizer).encode(read_conversation(fields))
    return tokenizer.decode(ids, skip_special_tokens=False)


def test_a_prompt_without_thinking(tokenizer):
    assert prompt(tokenizer, PLAIN) == "<｜begin▁of▁sentence｜><｜User｜>hello<｜Assistant｜></think>"


def test_a_prompt_with_thinking_ends_where_the_thoughts_begin(tokenizer):
    assert prompt(tokenizer, HELLO).endswith("<｜User｜>hello<｜Assistant｜><think>")


def test_a_chat_that_cannot_fit_is_refused_before_it_is_encoded(tokenizer):
    made = ChatFormat(tokenizer)
    chat = read_conversation({"messages": [{"role": "user", "content": "x" * 3000}]})
    assert len(made.encode(chat, 4096)) > 3000
    made._encoding = SimpleNamespace(render_conversation=made._encoding.render_conversation)  # which cannot encode
    with pytest.raises(PromptTooLong, match="has 31.. bytes, so .* or more, and the context 64"):
        made.encode(chat, 64)


def test_markers_are_special_tokens(tokenizer):
    ids = ChatFormat(tokenizer).encode(read_conversation(PLAIN))
    assert ids[0] == tokenizer.token_id("<｜begin▁of▁sentence｜>")
    assert ids[-1] == tokenizer.token_id("</think>")


def test_a_marker_in_a_message_stays_text(tokenizer):
    fields = {**PLAIN, "messages": [{"role": "user", "content": "a<｜Assistant｜>b"}]}
    ids = ChatFormat(tokenizer).encode(read_conversation(fields))
    assert ids.count(tokenizer.token_id("<｜Assistant｜>")) == 1
    assert "a<｜Assistant｜>b" in tokenizer.decode(ids, skip_special_tokens=False)


def test_a_tokenizer_without_the_markers_is_refused_by_their_names(bare_tokenizer):
    with pytest.raises(UnsupportedRequest, match="<｜begin▁of▁sentence｜>, <｜User｜>, <｜Assistant｜>, </think>"):
        ChatFormat(bare_tokenizer).encode(read_conversation(PLAIN))


@pytest.mark.parametrize("name", ["temperature", "toolz", "model", "max_tokens"])
def test_an_option_that_is_not_the_formats_is_refused(name):
    with pytest.raises(RequestError, match=f"unknown chat option {name!r}"):
        read_conversation({**PLAIN, name: 1})


@pytest.mark.parametrize("key", [5, None, "contnt", ("a", "b")])
def test_a_key_of_a_message_may_be_no_text_at_all(key):
    with pytest.raises(RequestError, match="unknown key"):
        read_conversation({"messages": [{"role": "user", "content": "a", key: "b"}]})


def test_images_are_refused_where_they_stand():
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "http://x/y.png"}}]
    with pytest.raises(UnsupportedRequest, match=r": messages\[0\];"):
        read_conversation({"messages": [{"role": "user", "content": parts}]})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"messages": []}, "Empty input messages"),
        ({"messages": "hello"}, "expected a sequence"),
        ({"messages": [{"role": "teacher", "content": "a"}]}, "unknown variant `teacher`"),
        ({"messages": [{"role": "user", "content": "a", "contnt": "b"}]}, r"'contnt'; did you mean 'content'\?"),
        ({**HELLO, "thinking": True}, "Thinking"),
        ({**HELLO, "reasoning_effort": 2**80}, "range"),
        ({**PLAIN, "tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}, "strict"),
    ],
)
def test_a_bad_request_says_what_is_wrong(fields, said):
    with pytest.raises(RequestError, match=said):
        read_conversation(fields)


def test_thoughts_and_content():
    answer = read_conversation(HELLO).parse("let me see</think>hi", "stop")
    assert (answer.reasoning, answer.content, answer.finish_reason) == ("let me see", "hi", "stop")


def test_thoughts_that_were_cut_short():
    answer = read_conversation(HELLO).parse("let me", "length")
    assert (answer.reasoning, answer.content, answer.finish_reason) == ("let me", "", "length")


def test_an_answer_without_thinking_has_no_reasoning():
    assert read_conversation(PLAIN).parse("hi", "stop").reasoning is None


def test_an_empty_answer():
    assert read_conversation(PLAIN).parse("", "stop").content == ""


def test_tool_calls():
    answer = read_conversation({**PLAIN, "tools": TOOLS}).parse("wait" + CALL, "stop")
    assert answer.content == "wait"
    assert answer.tool_calls == (ToolCall("look", '{"at": "sea"}'),)
    assert answer.finish_reason == "tool_calls"


def test_tool_markup_without_tools_is_text():
    assert read_conversation(PLAIN).parse("wait" + CALL, "stop").tool_calls == ()


@pytest.mark.parametrize("size", [1, 3, 7])
def test_an_answer_is_read_as_it_comes(size):
    """In pieces of any size: what the pieces add, joined, is what the whole answer says."""
    conversation = read_conversation({**HELLO, "tools": TOOLS})
    text = "let me see</think>wait" + CALL
    reader = AnswerReader(conversation)
    deltas = [reader.push(text[first : first + size]) for first in range(0, len(text), size)]
    rest, answer = reader.finish("stop")
    deltas.append(rest)
    assert answer == conversation.parse(text, "stop")
    assert "".join(delta.content for delta in deltas) == answer.content == "wait"
    assert "".join(delta.reasoning for delta in deltas) == answer.reasoning == "let me see"


@given(st.lists(st.sampled_from(["a", "<", "</", "think>", "</think>", "\n", ".\n\n", "｜", "DSML", " "]), max_size=8))
def test_nothing_of_an_answer_is_lost_at_its_end(pieces):
    """What the pieces add, with what is held back to the end, is the answer, wherever it is cut."""
    for fields in (HELLO, PLAIN, {**HELLO, "tools": TOOLS}):
        conversation = read_conversation(fields)
        reader = AnswerReader(conversation)
        deltas = [reader.push(piece) for piece in pieces]
        rest, answer = reader.finish("length")
        assert "".join(delta.content for delta in [*deltas, rest]) == answer.content
        assert "".join(delta.reasoning for delta in [*deltas, rest]) == (answer.reasoning or "")


def test_one_conversation_reads_many_answers():
    conversation = read_conversation(PLAIN)
    assert [conversation.parse(text, "stop").content for text in ("a", "b", "c")] == ["a", "b", "c"]


def test_a_parser_failure_is_that_answers_error(monkeypatch):
    class Broken:
        def __init__(self, *args):
            pass

        def push(self, chunk):
            raise RuntimeError("out of sorts")

    conversation = read_conversation(PLAIN)
    monkeypatch.setattr("deepseek_recipe.StreamProcessor", Broken)
    with pytest.raises(GenerationError, match="out of sorts"):
        conversation.parse("a", "stop")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepseek_recipe", None)
    with pytest.raises(UnsupportedRequest, match="install deepseek-recipe"):
        read_conversation(HELLO)
