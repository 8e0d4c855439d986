"""`deepinfer chat`, piped and typed."""

import io
import json
from types import SimpleNamespace

import pytest
from command_llm import CommandLLM
from fake_llm import TOO_LONG

from deepinfer_core.text.chat import ChatAnswer, ChatDelta, ToolCall


@pytest.fixture
def typed(deepinfer, monkeypatch):
    """Run a chat at a terminal. A line may be an exception, which typing it raises."""

    def run(*lines, words=()):
        left = iter(lines)

        def read(prompt):
            line = next(left, EOFError())
            if isinstance(line, BaseException):
                raise line
            return line

        monkeypatch.setattr("builtins.input", read)
        monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
        return deepinfer("chat", "--quiet", *words)

    return run


def piped(deepinfer, text, *words):
    return deepinfer("chat", "--quiet", *words, stdin=text)


def test_each_line_is_answered(deepinfer, llms):
    assert piped(deepinfer, "hello\n\nand you?\n") == (0, "answer 1\nanswer 3\n", "")


def test_what_was_said_is_remembered(deepinfer, llms):
    piped(deepinfer, "one\ntwo", "--system", "be kind")
    messages, _, _ = llms[0].asked[1]
    assert [message["content"] for message in messages] == ["be kind", "one", "answer 2", "two"]


def test_thoughts_are_shown_when_asked(deepinfer, llms):
    assert piped(deepinfer, "one", "--show-thinking")[1] == "<think>thoughts</think>\nanswer 1\n"


def test_tool_calls_follow_what_is_said(deepinfer, llms, monkeypatch):
    def call(self, messages, params=None, *, on_delta=None, **options):
        on_delta(0, ChatDelta(content="one ", reasoning=""))
        on_delta(0, ChatDelta(content="moment", reasoning=""))
        answer = ChatAnswer("one moment", None, (ToolCall("look", '{"at": "sea"}'),), "tool_calls")
        return SimpleNamespace(output=SimpleNamespace(error=None), answers=(answer,))

    monkeypatch.setattr(CommandLLM, "chat", call)
    assert piped(deepinfer, "one")[1] == 'one moment\n[look {"at": "sea"}]\n'


def test_no_thinking_reaches_the_format(deepinfer, llms):
    piped(deepinfer, "one", "--no-thinking")
    assert llms[0].asked[0][2] == {"thinking": {"type": "disabled"}}


def test_sampling_reaches_the_model(deepinfer, llms):
    piped(deepinfer, "one", "--max-tokens", "7")
    assert llms[0].asked[0][1] == {"max_tokens": 7}


@pytest.mark.parametrize(
    ("words", "said"),
    [(["-n", 0], "n = 0"), (["-n", 3], "goes on from one answer"), (["--top-p", "nan"], "top_p = nan")],
)
def test_wrong_usage_is_found_before_a_model_is_loaded(deepinfer, llms, words, said):
    code, _, err = piped(deepinfer, "a\n", *words)
    assert code == 2
    assert said in err
    assert llms == []


def test_answers_as_json(deepinfer, llms):
    answer = json.loads(piped(deepinfer, "one", "--json")[1])
    assert answer == {
        "content": "answer 1",
        "reasoning_content": "thoughts",
        "tool_calls": [],
        "finish_reason": "stop",
    }


def test_a_message_that_fails_is_not_remembered(deepinfer, llms):
    code, out, err = piped(deepinfer, f"{TOO_LONG}\ntwo")
    assert code == 1
    assert out == "answer 1\n"
    assert "too many tokens" in err


def test_typed_commands(typed, llms):
    code, out, err = typed("one", "/reset", "two", "/exit", "three")
    assert (code, out) == (0, "answer 1\nanswer 1\n")
    assert "/exit" in err


def test_a_failure_while_typing_is_no_failure_of_the_talk(typed, llms):
    assert typed(TOO_LONG)[0] == 0


def test_interrupting_an_answer_keeps_the_talk(typed, llms, monkeypatch):
    chat = CommandLLM.chat
    interrupts = iter([KeyboardInterrupt()])

    def interrupted(self, *args, **options):
        if (error := next(interrupts, None)) is not None:
            raise error
        return chat(self, *args, **options)

    monkeypatch.setattr(CommandLLM, "chat", interrupted)
    code, out, err = typed("one", "two")
    assert (code, out) == (0, "answer 1\n")
    assert "(stopped)" in err


def test_an_interrupted_answer_is_shown_so_far(typed, llms, monkeypatch):
    def interrupted(self, messages, params=None, *, on_delta=None, **options):
        on_delta(0, ChatDelta(content="half an answer", reasoning=""))
        raise KeyboardInterrupt

    monkeypatch.setattr(CommandLLM, "chat", interrupted)
    assert typed("one")[1] == "half an answer\n"


def test_interrupting_the_prompt_leaves(typed, llms):
    assert typed(KeyboardInterrupt())[0] == 130
    assert llms[0].left == 1


@pytest.mark.parametrize(
    ("encoding", "errors"), [("utf-8", "strict"), ("ascii", "strict"), ("utf-8", "surrogateescape")]
)
def test_input_is_utf_8_whatever_the_locale_says(deepinfer, llms, monkeypatch, encoding, errors):
    text = io.TextIOWrapper(io.BytesIO("é\n".encode()), encoding=encoding, errors=errors)
    monkeypatch.setattr("sys.stdin", text)
    assert deepinfer("chat", "--quiet")[:2] == (0, "answer 1\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"h\xe9\n"), encoding=encoding, errors=errors))
    code, out, err = deepinfer("chat")
    assert (code, out) == (2, "")
    assert "standard input is not utf-8: " in err


def test_half_a_surrogate_pair_is_the_messages_fault(deepinfer, llms, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("h\udce9\ntwo\n"))
    code, out, err = deepinfer("chat")
    assert (code, out) == (1, "answer 1\n")
    assert "half of a surrogate pair" in err
