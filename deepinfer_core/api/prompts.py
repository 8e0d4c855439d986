"""From what a caller passes to `LLM.generate` to requests. A prompt or parameters that cannot be used become an error
of that request alone."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

from deepinfer_core.api.errors import RequestError, shown
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.engine.request import Request

Prompt: TypeAlias = str | Sequence[int]
Params: TypeAlias = SamplingParams | Mapping[str, Any]

_UNORDERED = (Mapping, Set)  # going through one gives keys, or items in no order that the caller could know


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that could not even be made, and why."""

    request: Request
    error: RequestError


def make_requests(
    prompts: Prompt | Iterable[Prompt], params: Params | Sequence[Params] | None, cache_salt: str | None = None
) -> list[Request | Refused]:
    """One request a prompt, named by its place. Raises `RequestError` when the numbers of both differ."""
    each = _separate(prompts)
    chosen = list(params) if isinstance(params, Sequence) else [params] * len(each)
    if len(chosen) != len(each):
        raise RequestError(
            f"{len(each)} prompts came with {len(chosen)} sampling parameters: give one for all, or one for each"
        )
    return [_request(str(place), *pair, cache_salt) for place, pair in enumerate(zip(each, chosen, strict=True))]


def _separate(prompts: object) -> list[object]:
    """The prompts one by one. A list that begins with a number is one prompt of token ids."""
    if isinstance(prompts, (str, bytes)):
        return [prompts]
    if not isinstance(prompts, Iterable) or isinstance(prompts, _UNORDERED):
        raise RequestError(f"prompts is a {type(prompts).__name__}: give text, token ids, or a list of them")
    items = list(prompts)
    return [items] if items and _is_number(items[0]) else items


def _is_number(item: object) -> bool:
    """Whether it could be a token id. A row of an array is none, although arrays of one number convert to it."""
    return hasattr(item, "__index__") and getattr(item, "shape", ()) == ()


def _request(name: str, prompt: object, params: object, cache_salt: str | None) -> Request | Refused:
    text, ids = None, None
    try:
        if isinstance(prompt, str):
            text = prompt
        else:
            ids = _token_ids(prompt)
        return Request(name, text, ids, _sampling(params), cache_salt)
    except RequestError as error:
        return Refused(Request(name, text, ids), error)


def _token_ids(prompt: object) -> tuple[int, ...]:
    if isinstance(prompt, (bytes, *_UNORDERED)) or not isinstance(prompt, Iterable):
        raise RequestError(f"the prompt is a {type(prompt).__name__}: give text or a list of token ids")
    return tuple(map(_token_id, prompt, itertools.count()))


def _token_id(item: object, place: int) -> int:
    if not _is_number(item) or isinstance(item, bool):
        raise RequestError(f"prompt token {place} is {shown(item)}: give a whole number")
    return operator.index(item)  # type: ignore[arg-type]  # it has __index__


def _sampling(params: object) -> SamplingParams:
    if params is None:
        return SamplingParams()
    if isinstance(params, Mapping):
        return SamplingParams.from_dict(params)
    if not isinstance(params, SamplingParams):
        raise RequestError(f"params is a {type(params).__name__}: give SamplingParams, or a mapping of its fields")
    return params
