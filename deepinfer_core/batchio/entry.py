"""One line of a batch file as a request: OpenAI's batch form and our short form, checked without a model.

Which fields a request may have, and what they become, is in `fields.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepinfer_core.api.errors import RequestError, nearest, shown
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.batchio import fields
from deepinfer_core.batchio.jsonl import MAX_LINE_BYTES, decode_object, json_kind, refuse_surrogates
from deepinfer_core.text.chat import Conversation

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"

_FORM_KEYS = frozenset({"custom_id", "method", "url", "body"})


@dataclass(frozen=True, slots=True)
class Entry:
    """A valid line. A prompt is text, token ids or a conversation."""

    line: int
    custom_id: str
    prompt: str | tuple[int, ...] | Conversation
    params: SamplingParams
    model: str | None  # the model that the line names
    return_token_ids: bool
    cache_salt: str | None = None  # only requests of equal salt share cached prefixes


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that cannot be a request. `custom_id` is None where none could be read."""

    line: int
    custom_id: str | None
    error: RequestError


def read_entry(line: int, raw: bytes | None, defaults: Mapping[str, Any]) -> Entry | Rejected:
    """Check one line. `defaults` are the sampling parameters of a request that does not give them."""
    custom_id = None
    try:
        if raw is None:
            raise RequestError(f"the line is longer than {MAX_LINE_BYTES} bytes")
        found = decode_object(raw)
        custom_id = _custom_id(found)
        refuse_surrogates(raw, found)
        body, chat = _body(found)
        request = fields.read_body(body, chat, defaults)
    except RequestError as error:
        return Rejected(line, custom_id, error)
    except RecursionError:
        return Rejected(line, custom_id, RequestError("the line is nested too deeply to be read"))
    return Entry(
        line=line,
        custom_id=custom_id,
        prompt=request.prompt,
        params=request.params,
        model=request.model,
        return_token_ids=request.return_token_ids,
        cache_salt=request.cache_salt,
    )


def _custom_id(found: dict[str, Any]) -> str:
    if "custom_id" not in found:
        raise RequestError("custom_id is missing: give each request a name of its own")
    custom_id = found["custom_id"]
    if custom_id == "":
        raise RequestError("custom_id is empty: give a string that is not empty")
    if not isinstance(custom_id, str):
        raise RequestError(f"custom_id is {json_kind(custom_id)}: give a string that is not empty")
    return custom_id


def _body(found: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The request's fields, and whether it is a chat. In the short form they stand beside custom_id."""
    if not found.keys() & {"method", "url", "body"}:
        short = {key: value for key, value in found.items() if key != "custom_id"}
        return short, "messages" in short
    for key in ("method", "url", "body"):
        if key not in found:
            raise RequestError(f"{key} is missing: give method, url and body, or the short form without all three")
    for key in found:
        if key not in _FORM_KEYS:
            raise RequestError(f"unknown key {shown(key)} beside body{nearest(key, _FORM_KEYS)}")
    if found["method"] != "POST":
        raise RequestError(f'method = {shown(found["method"])} is not allowed: it is always "POST"')
    if found["url"] not in (COMPLETIONS, CHAT):
        raise RequestError(f"url = {shown(found['url'])} is not served: give {COMPLETIONS} or {CHAT}")
    if not isinstance(found["body"], dict):
        raise RequestError(f"body is {json_kind(found['body'])}: give an object")
    return found["body"], found["url"] == CHAT
