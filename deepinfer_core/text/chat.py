"""Chat: messages to prompt ids, an answer's text to reasoning, content and tool calls. The formats themselves are
deepseek_recipe's, which the model's makers publish; sampling parameters are no business of this room."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from deepinfer_core.api.errors import GenerationError, RequestError, UnsupportedRequest, nearest, shown

if TYPE_CHECKING:
    import deepseek_recipe

    from deepinfer_core.text.tokenizer import Tokenizer

# What of a chat request shapes its prompt, in the words of the OpenAI and DeepSeek protocols.
PROMPT_FIELDS = frozenset({"messages", "tools", "tool_choice", "response_format", "reasoning_effort", "thinking"})

_MODEL = "DeepSeek-V4.1-Flash"  # the name under which deepseek_recipe knows the format
_MESSAGE_FIELDS = frozenset({"role", "content", "reasoning_content", "tool_calls", "tool_call_id", "prefix"})


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for. `arguments` is JSON text as the model wrote it, perhaps cut short."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What an answer's text says. `reasoning` is None where the model was not asked to think."""

    content: str
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """More of an answer that is being written. Joined, the deltas of an answer are its content and its reasoning."""

    content: str
    reasoning: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A chat request that was found valid, ready to be rendered, and to read its answers."""

    converted: deepseek_recipe.ConversationRequest

    @property
    def thinking(self) -> bool:
        return self.converted.conversation.thinking_mode

    def parse(self, text: str, finish_reason: Literal["stop", "length"]) -> ChatAnswer:
        """Read one whole answer. Raises `GenerationError` when it cannot be read."""
        reader = AnswerReader(self)
        reader.push(text)
        _, answer = reader.finish(finish_reason)
        return answer


class AnswerReader:
    """Reads one answer, whole or as its text comes. The text must hold the special tokens that mark its parts.

    Raises `GenerationError` when it cannot be read.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._recipe = recipe = _recipe()
        generator = recipe.ChatCompletionRequest.chunk_generator(conversation.converted, "", "")
        self._processor = recipe.StreamProcessor(generator, conversation.converted.parsing_options)
        self._response = recipe.ChatCompletionResponse("", "", 0, 0, 0)

    def push(self, text: str) -> ChatDelta:
        """Take more text; what has become certain of the thoughts and the content. The end of a text that may begin a
        marker comes with a later one."""
        return self._read(self._recipe.InferenceChunk.text(text))

    def finish(self, finish_reason: Literal["stop", "length"]) -> tuple[ChatDelta, ChatAnswer]:
        """What was still held back, and the whole answer. Nothing may be pushed afterwards."""
        reason = self._recipe.InferenceFinishReason
        ended = self._recipe.InferenceChunk.finish(reason.Stop if finish_reason == "stop" else reason.Length)
        rest = self._read(ended, last=True)
        return rest, _answer(json.loads(self._response.to_json())["choices"])

    def _read(self, given: deepseek_recipe.InferenceChunk, last: bool = False) -> ChatDelta:
        try:
            chunks = self._processor.push(given) + (self._processor.finish() if last else [])
        except RuntimeError as error:
            raise GenerationError(f"the answer cannot be read as a chat message: {error}") from error
        deltas = [choice["delta"] for chunk in chunks for choice in json.loads(chunk.to_json())["choices"]]
        for chunk in chunks:
            self._response.accumulate(chunk)  # which empties it
        content, reasoning = (
            "".join(delta.get(name) or "" for delta in deltas) for name in ("content", "reasoning_content")
        )
        return ChatDelta(content, reasoning)


class ChatFormat:
    """Renders conversations into the ids of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def _encoding(self) -> deepseek_recipe.DeepseekV41Encoding:
        recipe = _recipe()
        encoding: deepseek_recipe.DeepseekV41Encoding = recipe.DeepseekV41Encoding()
        return encoding.with_tokenizer(recipe.Tokenizer.from_str(self._tokenizer.to_json()))

    def encode(self, conversation: Conversation, max_length: int | None = None) -> tuple[int, ...]:
        """Prompt ids. Special tokens are only those that the format itself puts: their spelling in a message stays
        text. Raises `UnsupportedRequest` naming the special tokens that the tokenizer lacks, and `PromptTooLong`,
        before anything is encoded, for what cannot fit a context of `max_length` tokens whatever its tokens are."""
        rendered = self._encoding.render_conversation(conversation.converted.conversation)
        self._require(rendered.prompt[start:end] for start, end in rendered.special_ranges)
        if max_length is not None:
            self._tokenizer.refuse_hopeless(rendered.prompt, max_length)
        return tuple(self._encoding.encode(conversation.converted.conversation))

    def _require(self, spellings: Iterable[str]) -> None:
        missing = [text for text in dict.fromkeys(spellings) if text not in self._tokenizer.added]
        if missing:
            raise UnsupportedRequest(
                f"this model's tokenizer lacks special tokens of the chat format: {', '.join(missing)}; "
                "send a plain prompt, or use a checkpoint whose tokenizer has them"
            )


def read_conversation(fields: Mapping[str, Any]) -> Conversation:
    """Check the PROMPT_FIELDS of a chat request. Raises `RequestError` with what is wrong, and `UnsupportedRequest`
    for images and for what is asked for but could not be kept."""
    recipe = _recipe()
    for name in fields.keys() - PROMPT_FIELDS:
        raise RequestError(f"unknown chat option {name!r}{nearest(name, PROMPT_FIELDS)}")
    _check_messages(fields.get("messages"))
    try:
        request = recipe.ChatCompletionRequest({"model": _MODEL, **fields})
        converted = request.convert(recipe.ConversionOptions())
    except recipe.ConversionError as error:
        raise RequestError(_message(error.body)) from error
    except UnicodeEncodeError as error:
        raise RequestError("a text of the chat holds half of a surrogate pair: it is no character") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestError(str(error)) from error
    except RecursionError as error:
        raise RequestError("the chat is nested too deeply to be read") from error
    _refuse_unkept(converted.conversation)
    return Conversation(converted)


def _check_messages(messages: object) -> None:
    """Refuse what deepseek_recipe would pass over in silence: keys of a message that it does not read."""
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        for key, value in message.items() if isinstance(message, dict) else ():
            if key not in _MESSAGE_FIELDS and value not in (None, [], ""):
                hint = nearest(str(key), _MESSAGE_FIELDS)
                raise RequestError(f"messages[{index}] has an unknown key {shown(key)}{hint}")


def _refuse_unkept(conversation: deepseek_recipe.Conversation) -> None:
    images = [source.path.removeprefix(".") for message in conversation.messages for source in message.image_sources]
    if images:
        raise UnsupportedRequest(f"images are not supported: {', '.join(images)}; send text only")
    strict = [tool.name for tool in conversation.tools if tool.strict]
    if strict:
        raise UnsupportedRequest(f"tools with strict = true are not supported: {', '.join(strict)}; leave it out")


def _recipe() -> ModuleType:
    try:
        import deepseek_recipe
    except ImportError as error:
        raise UnsupportedRequest(
            "chat needs the package deepseek-recipe, which cannot be imported here "
            f"({error}); install deepseek-recipe==0.2.0, or send a plain prompt"
        ) from error
    return deepseek_recipe


def _message(body: str) -> str:
    """The sentence inside a protocol error's JSON body."""
    return str(json.loads(body)["error"]["message"])


def _answer(choices: list[dict[str, Any]]) -> ChatAnswer:
    message = choices[0]["message"]
    calls = tuple(
        ToolCall(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())
    )
    return ChatAnswer(message["content"], message.get("reasoning_content"), calls, choices[0]["finish_reason"])
