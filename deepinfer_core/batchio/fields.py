"""The fields of a request body, in OpenAI's names and ours, and what they become: a prompt and SamplingParams."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepinfer_core.api.errors import RequestError, UnsupportedRequest, nearest, shown
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.batchio.jsonl import json_kind
from deepinfer_core.text.chat import PROMPT_FIELDS, Conversation, read_conversation

_PARAMS = frozenset(field.name for field in dataclasses.fields(SamplingParams))
_LABELS = frozenset({"model", "user", "metadata"})  # they name things and change no answer
_ALIASES = frozenset({"max_completion_tokens", "response_format", "return_token_ids", "cache_salt"})
# Fields of OpenAI's that client libraries write out although they ask for nothing: served with this value only.
_ONLY = {"stream": False, "echo": False, "best_of": 1, "store": False, "parallel_tool_calls": True}
_COMMON = _PARAMS | _LABELS | _ALIASES | _ONLY.keys()
_COMPLETION_FIELDS = _COMMON | {"prompt", "prompt_token_ids"}
# A chat answer is read from its special tokens, so they are always kept.
_CHAT_FIELDS = (_COMMON | PROMPT_FIELDS | {"top_logprobs"}) - {"skip_special_tokens"}


@dataclass(frozen=True, slots=True)
class Body:
    """A request body that was found valid."""

    prompt: str | tuple[int, ...] | Conversation
    params: SamplingParams
    model: str | None
    return_token_ids: bool
    cache_salt: str | None


def read_body(body: Mapping[str, Any], chat: bool, defaults: Mapping[str, Any]) -> Body:
    """Check a body. A field that is null asks for nothing. Raises `RequestError` naming the field."""
    known = _CHAT_FIELDS if chat else _COMPLETION_FIELDS
    given = {name: value for name, value in body.items() if value is not None}
    for name in given:
        if name not in known:
            raise RequestError(f"unknown field {shown(name)}{nearest(name, known)}")
    for name, only in _ONLY.items():
        if (value := given.get(name, only)) != only or type(value) is not type(only):  # 0 is not false
            raise UnsupportedRequest(f"{name} = {shown(given[name])} is not supported: leave it out")
    params = _params(given, chat, defaults)
    prompt = _conversation(given, params) if chat else _prompt(given)
    return Body(prompt, params, _model(given), _flag(given, "return_token_ids"), _salt(given))


def _params(given: dict[str, Any], chat: bool, defaults: Mapping[str, Any]) -> SamplingParams:
    values = {name: value for name, value in given.items() if name in _PARAMS}
    if "max_completion_tokens" in given:
        if "max_tokens" in given:
            raise RequestError("max_tokens and max_completion_tokens say the same: give one of them")
        values["max_tokens"] = given["max_completion_tokens"]
    if "response_format" in given:
        if "constraint" in given:
            raise RequestError("response_format and constraint say the same: give one of them")
        values["constraint"] = _constraint(given["response_format"])
    if chat:
        values |= {"logprobs": _chat_logprobs(given), "skip_special_tokens": False}
    return SamplingParams.from_dict({**defaults, **values})


def _chat_logprobs(given: dict[str, Any]) -> Any:
    """Chat says whether and how many apart; SamplingParams says both in one number."""
    wanted = _flag(given, "logprobs")
    if "top_logprobs" in given and not wanted:
        raise RequestError("top_logprobs needs logprobs = true")
    return given.get("top_logprobs", 0) if wanted else None


def _constraint(response_format: object) -> dict[str, Any] | None:
    """A response_format as a constraint: {kind: specification}."""
    if not isinstance(response_format, dict):
        raise RequestError(f"response_format is {json_kind(response_format)}: give an object")
    match response_format:
        case {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"json_schema": {"type": "object"}}
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return {"json_schema": schema}
        case {"type": "regex", "regex": str(pattern)}:
            return {"regex": pattern}
    raise RequestError(
        f"response_format = {shown(response_format)} is not understood: its type is text, json_object, json_schema "
        "(with json_schema.schema) or regex (with regex)"
    )


def _prompt(given: dict[str, Any]) -> str | tuple[int, ...]:
    if ("prompt" in given) == ("prompt_token_ids" in given):
        raise RequestError("give one of prompt, prompt_token_ids and messages")
    name = "prompt" if "prompt" in given else "prompt_token_ids"
    value = given[name]
    if isinstance(value, str) and name == "prompt":
        return value
    if isinstance(value, list) and set(map(type, value)) <= {int}:
        return tuple(value)
    allowed = "a string or a list of token ids" if name == "prompt" else "a list of token ids"
    raise RequestError(f"{name} must be {allowed}; it is {json_kind(value)}: send each prompt on a line of its own")


def _conversation(given: dict[str, Any], params: SamplingParams) -> Conversation:
    if "messages" not in given:
        raise RequestError("messages is missing")
    conversation = read_conversation({name: value for name, value in given.items() if name in PROMPT_FIELDS})
    if params.constraint is not None and conversation.thinking:
        raise UnsupportedRequest(
            'a constrained answer cannot think first: add "thinking": {"type": "disabled"} or leave the constraint out'
        )
    return conversation


def _model(given: dict[str, Any]) -> str | None:
    model = given.get("model")
    if model is None or isinstance(model, str):
        return model
    raise RequestError(f"model is {json_kind(model)}: give a string")


def _salt(given: dict[str, Any]) -> str | None:
    salt = given.get("cache_salt")
    if salt is None or (isinstance(salt, str) and salt):
        return salt
    raise RequestError(f"cache_salt is {json_kind(salt)}: give a string that is not empty")


def _flag(given: dict[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise RequestError(f"{name} is {json_kind(value)}: give true or false")
    return value
