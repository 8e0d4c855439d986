"""SamplingParams: everything a request may ask of the sampler, checked when it is made.

Names and meanings are vLLM's. Checks that need the model (vocabulary, context) are in `engine/admission.py`.
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from deepinfer_core.api.errors import RequestError, nearest, shown

MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 4096
MAX_BAD_WORDS = 1024
MAX_N = 1024
MAX_LOGPROBS = 1 << 18
GREEDY_BELOW = 1e-5  # temperatures below this are greedy

_NUMBERS = (
    "n", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "logprobs", "prompt_logprobs",
    "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
_JSON_KEY = re.compile("0|[1-9][0-9]{0,9}")  # a token id as JSON must write it to be a key


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to continue one prompt. Raises `RequestError` naming the field, the value and what is allowed."""

    n: int = 1  # answers to give; answer i is drawn from key (seed, i)
    max_tokens: int | None = 128  # tokens of an answer; None: to the end of the context
    min_tokens: int = 0  # no stop may end an answer before this many tokens
    temperature: float = 1.0  # below 1e-5: greedy
    top_p: float = 1.0  # (0, 1]
    top_k: int = 0  # 0 or -1: off
    min_p: float = 0.0  # [0, 1]: keep tokens with p >= min_p * max p
    seed: int | None = None  # 0 .. 2**64-1; None: drawn at admission and reported
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False  # keep the stop string or stop token's text in the answer
    ignore_eos: bool = False
    logprobs: int | None = None  # top alternatives for each token; 0: the chosen token's only
    prompt_logprobs: int | None = None  # the same for the prompt's tokens
    repetition_penalty: float = 1.0  # > 0; prompt and answer count
    presence_penalty: float = 0.0  # [-2, 2]; the answer counts
    frequency_penalty: float = 0.0  # [-2, 2]; the answer counts
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    skip_special_tokens: bool = True
    processors: tuple[str, ...] = ()  # plugins' logits processors, applied in order of their names
    constraint: Mapping[str, Any] | None = None  # {"json_schema": ...}, {"regex": ...}, ...: needs a plugin

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        stop: object = self.stop
        if isinstance(stop, str):
            set_field(self, "stop", (stop,))
        for name in ("stop", "stop_token_ids", "bad_words", "processors"):
            set_field(self, name, _tuple(name, getattr(self, name)))
        if self.allowed_token_ids is not None:
            set_field(self, "allowed_token_ids", _tuple("allowed_token_ids", self.allowed_token_ids))
        set_field(self, "logit_bias", _bias(self.logit_bias))
        for name in _NUMBERS:
            set_field(self, name, _plain(getattr(self, name)))
        _check_counts(self)
        _check_numbers(self)
        _check_texts(self)

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SamplingParams:
        """Build from named values; an unknown name is an error that says the nearest one."""
        known = {f.name for f in fields(cls)}
        for name in values:
            if name not in known:
                raise RequestError(f"unknown sampling parameter {shown(name)}{nearest(str(name), known)}")
        return cls(**values)

    def replace(self, **changes: Any) -> SamplingParams:
        """A copy with some fields changed, checked again."""
        return replace(self, **changes)


def _fail(name: str, value: object, allowed: str) -> RequestError:
    return RequestError(f"{name} = {shown(value)} is not allowed: {allowed}")


def _tuple(name: str, value: object) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _fail(name, value, "give a list")
    return tuple(map(_plain, value))


def _plain(value: Any) -> Any:
    """A number of another library, numpy's for example, as Python's own; anything else as it is."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def _integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _fail(name, value, f"give a whole number from {low} to {high}")
    return value


def _number(name: str, value: object, low: float, high: float, open_low: bool = False) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        above = low < value if open_low else low <= value  # compared before it is converted: an int may be too large
        if above and value <= high:
            return float(value)
    raise _fail(name, value, f"give a finite number in {'(' if open_low else '['}{low}, {high}]")


def _bias(value: object) -> dict[int, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _fail("logit_bias", value, "give a mapping from token id to a number in [-100, 100]")
    bias: dict[int, float] = {}
    for token, amount in value.items():
        if isinstance(token, str) and _JSON_KEY.fullmatch(token):
            token = int(token)
        key = _integer("a key of logit_bias", _plain(token), 0, 2**31 - 1)
        if key in bias:
            raise RequestError(f"logit_bias names token {key} twice: name it once")
        bias[key] = _number(f"logit_bias[{key}]", _plain(amount), -100.0, 100.0)
    return bias


def _check_counts(p: SamplingParams) -> None:
    _integer("n", p.n, 1, MAX_N)
    if p.max_tokens is not None:
        _integer("max_tokens", p.max_tokens, 0, 2**31 - 1)
    _integer("min_tokens", p.min_tokens, 0, 2**31 - 1)
    if p.max_tokens is not None and p.min_tokens > p.max_tokens:
        raise _fail("min_tokens", p.min_tokens, f"it may not exceed max_tokens = {p.max_tokens}")
    _integer("top_k", p.top_k, -1, 2**31 - 1)
    if p.seed is not None:
        _integer("seed", p.seed, 0, 2**64 - 1)
    for name in ("logprobs", "prompt_logprobs"):
        if getattr(p, name) is not None:
            _integer(name, getattr(p, name), 0, MAX_LOGPROBS)
    for token in p.stop_token_ids:
        _integer("an entry of stop_token_ids", token, 0, 2**31 - 1)
    for token in p.allowed_token_ids or ():
        _integer("an entry of allowed_token_ids", token, 0, 2**31 - 1)
    if p.allowed_token_ids is not None and not p.allowed_token_ids:
        raise _fail("allowed_token_ids", [], "an empty list allows nothing; leave it out to allow every token")
    for name in ("ignore_eos", "skip_special_tokens", "include_stop"):
        if not isinstance(getattr(p, name), bool):
            raise _fail(name, getattr(p, name), "give true or false")


def _check_numbers(p: SamplingParams) -> None:
    _number("temperature", p.temperature, 0.0, 100.0)
    _number("top_p", p.top_p, 0.0, 1.0, open_low=True)
    _number("min_p", p.min_p, 0.0, 1.0)
    _number("repetition_penalty", p.repetition_penalty, 0.0, 100.0, open_low=True)
    _number("presence_penalty", p.presence_penalty, -2.0, 2.0)
    _number("frequency_penalty", p.frequency_penalty, -2.0, 2.0)


def _check_texts(p: SamplingParams) -> None:
    for name, texts, most in (("stop", p.stop, MAX_STOP_STRINGS), ("bad_words", p.bad_words, MAX_BAD_WORDS)):
        if len(texts) > most:
            raise RequestError(f"{name} has {len(texts)} entries: give at most {most}")
    for name, texts in (("stop", p.stop), ("bad_words", p.bad_words)):
        for text in texts:
            if not isinstance(text, str) or not text or len(text) > MAX_STOP_LENGTH:
                raise _fail(f"an entry of {name}", text, f"give a string of 1 to {MAX_STOP_LENGTH} characters")
    if not all(isinstance(name, str) for name in p.processors) or len(set(p.processors)) < len(p.processors):
        raise _fail("processors", list(p.processors), "give names of logits processors, each once")
    if p.constraint is not None and not isinstance(p.constraint, Mapping):
        raise _fail("constraint", p.constraint, 'give a mapping such as {"regex": "[0-9]+"}')
