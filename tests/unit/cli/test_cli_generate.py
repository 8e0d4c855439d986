"""`deepinfer generate`."""

import json
import signal

import pytest
from command_llm import CommandLLM
from fake_llm import TOO_LONG

from deepinfer_core.api.errors import DeviceError


def test_one_answer_is_its_text_alone(deepinfer, llms):
    code, out, err = deepinfer("generate", "hello")
    assert code == 0
    assert out.startswith("answer ")
    assert out.count("\n") == 1
    assert err == "running on a stand-in\n"


def test_one_answer_is_shown_while_it_is_written(deepinfer, llms, monkeypatch):
    def break_off(self, prompts, params, on_text):
        on_text(0, 0, "half an ")
        on_text(0, 0, "answer")
        raise DeviceError("the device fell off")

    monkeypatch.setattr(CommandLLM, "generate", break_off)
    code, out, _ = deepinfer("generate", "hello")
    assert (code, out) == (DeviceError.exit_code, "half an answer\n")


def test_a_polite_kill_ends_it_as_ctrl_c_does(deepinfer, llms, monkeypatch, tmp_path):
    def killed(self, prompts, params, on_text):
        on_text(0, 0, "half an answer")
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(CommandLLM, "generate", killed)
    code, out, _ = deepinfer("generate", "hello", "--timeline", tmp_path / "trace.json")
    assert (code, out) == (130, "half an answer\n")
    assert json.loads((tmp_path / "trace.json").read_text())


def test_a_prompt_without_an_answer_shows_nothing(deepinfer, llms):
    assert deepinfer("generate", TOO_LONG)[:2] == (1, "")


def test_quiet_says_nothing_else(deepinfer, llms):
    assert deepinfer("generate", "hello", "--quiet")[2] == ""


def test_the_same_prompt_is_answered_from_standard_input(deepinfer, llms):
    piped = deepinfer("generate", stdin="hello\n")
    assert piped == deepinfer("generate", "hello")


def test_several_answers_say_which_they_are(deepinfer, llms):
    _, out, _ = deepinfer("generate", "a", "b", "-n", "2")
    lines = out.splitlines()
    assert lines[::2] == [f"--- prompt {prompt}, answer {answer}" for prompt in (1, 2) for answer in (1, 2)]


def test_a_prompt_that_fails_fails_alone(deepinfer, llms):
    code, out, err = deepinfer("generate", TOO_LONG, "b")
    assert code == 1
    assert "--- prompt 2, answer 1\nanswer" in out
    assert "deepinfer: prompt 1: the prompt has too many tokens" in err


def test_records(deepinfer, llms):
    code, out, _ = deepinfer("generate", "a", TOO_LONG, "--json")
    good, bad = map(json.loads, out.splitlines())
    assert code == 1
    assert good["response"]["body"]["choices"][0]["text"].startswith("answer")
    assert good["response"]["body"]["model"] == "demo"
    assert (bad["custom_id"], bad["error"]["code"]) == ("prompt-2", "prompt_too_long")


@pytest.mark.parametrize("text", ["97 98", "97,98", " 97, 98 "])
def test_token_ids(deepinfer, llms, text):
    assert deepinfer("generate", "--ids", text) == deepinfer("generate", "--ids", "97 98")


def test_engine_options_reach_the_model(deepinfer, llms):
    deepinfer("generate", "a", "-m", "folder", "--max-running", "3")
    assert (llms[0].config.model, llms[0].config.max_running) == ("folder", 3)
    assert llms[0].left == 1


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (["--ids", "a b"], None, "no list of token ids"),
        *((["--ids", f"5 {odd}"], None, "is no whole number") for odd in ("1_0", "٣", "0x10", "1.0", "9" * 5000)),
        ([], b"\xff", "standard input is not UTF-8"),
        (["a", "--temperature", "-1"], None, "temperature = -1.0"),
    ],
)
def test_wrong_usage(deepinfer, llms, words, stdin, said):
    code, _, err = deepinfer("generate", *words, stdin=stdin)
    assert code == 2
    assert said in err
    assert llms == []


def test_nobody_waits_at_a_terminal(deepinfer, llms, monkeypatch):
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    code, _, err = deepinfer("generate")
    assert code == 2
    assert "no prompt" in err
