"""LLM with a tokenizer: texts, conversations, and hearing both while they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_tokenizers import byte_level_json
from test_llm import OPTIONS, TINY, tokens

from deepinfer_core import LLM, SamplingParams
from deepinfer_core.api.errors import PromptTooLong, RequestError
from deepinfer_core.text.chat import ChatDelta, ChatFormat, read_conversation


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """The same checkpoint with a tokenizer."""
    folder = tmp_path_factory.mktemp("talking")
    for path in Path(TINY).iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "tokenizer.json").write_text(byte_level_json(), encoding="utf-8")
    with LLM(str(folder), **{**OPTIONS, "max_length": 192}) as made:
        yield made


def test_texts_are_answered_with_texts(talking: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    assert talking.tokenizer is not None
    (output,) = talking.generate("one, two", params)
    assert list(output.prompt_token_ids) == talking.tokenizer.encode("one, two")
    (answer,) = output.outputs
    assert answer.text == talking.tokenizer.decode(answer.token_ids)
    (ids,) = talking.generate([list(output.prompt_token_ids)], params)
    assert ids.outputs == output.outputs


def test_a_conversation_is_rendered_answered_and_read(talking: LLM) -> None:
    messages = [{"role": "user", "content": "hello"}]
    params = {"temperature": 0.0, "max_tokens": 8, "n": 2, "logit_bias": dict.fromkeys(range(97, 123), 100.0)}
    found = talking.chat(messages, params, thinking={"type": "disabled"})
    conversation = read_conversation({"messages": messages, "thinking": {"type": "disabled"}})
    assert talking.tokenizer is not None
    assert found.output.prompt_token_ids == ChatFormat(talking.tokenizer).encode(conversation)
    assert [answer.content for answer in found.answers] == [answer.text for answer in found.output.outputs]
    assert len(found.answers[0].content) == 8
    assert found.answers[0].finish_reason == "length"


def test_text_is_heard_while_it_is_written(talking: LLM) -> None:
    heard: list[tuple[int, int, str]] = []
    params = SamplingParams(max_tokens=6, n=2, seed=4, ignore_eos=True)
    outputs = talking.generate(["one", [7], "ab"], params, on_text=lambda *piece: heard.append(piece))
    assert list(map(tokens, outputs)) == list(map(tokens, talking.generate(["one", [7], "ab"], params)))
    for place, output in enumerate(outputs):
        for answer in output.outputs:
            pieces = [text for of, index, text in heard if (of, index) == (place, answer.index)]
            assert "".join(pieces) == answer.text


def test_a_conversation_is_heard_while_it_is_written(talking: LLM) -> None:
    heard: list[tuple[int, ChatDelta]] = []
    assert talking.tokenizer is not None
    letters, end_of_thoughts = dict.fromkeys(range(97, 123), 50.0), {talking.tokenizer.added["</think>"]: 54.0}
    params = {"n": 2, "seed": 3, "max_tokens": 60, "logit_bias": letters | end_of_thoughts}
    found = talking.chat([{"role": "user", "content": "hello"}], params, on_delta=lambda *delta: heard.append(delta))
    assert any(answer.reasoning and answer.content for answer in found.answers)
    for index, answer in enumerate(found.answers):
        deltas = [delta for of, delta in heard if of == index]
        assert len(deltas) > 20
        assert "".join(delta.content for delta in deltas) == answer.content
        assert "".join(delta.reasoning for delta in deltas) == answer.reasoning


def test_a_listener_that_fails_ends_its_call_alone(talking: LLM) -> None:
    def stumble(*_: Any) -> None:
        raise ZeroDivisionError

    params = SamplingParams(max_tokens=30, ignore_eos=True, seed=1)
    with pytest.raises(ZeroDivisionError):
        talking.generate("one", params, on_text=stumble)
    stats = talking.engine.stats()
    assert (stats.waiting, stats.running, stats.used_blocks) == (0, 0, 0)
    assert talking._listeners == {}
    assert tokens(talking.generate("one", params)[0])


def test_a_conversation_that_is_none_is_refused(talking: LLM) -> None:
    with pytest.raises(RequestError):
        talking.chat([{"role": "nobody", "content": "hello"}])
    with pytest.raises(RequestError, match="did you mean 'temperature'"):
        talking.chat([{"role": "user", "content": "hello"}], {"temprature": 1.0})
    long = talking.chat([{"role": "user", "content": "x" * 200}])
    assert isinstance(long.output.error, PromptTooLong)
    assert long.answers == ()
