"""Lines of strict JSON, in and out. What the objects mean is in `entry.py` and `records.py`."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn, Protocol

from deepinfer_core.api.errors import RequestError, shown
from deepinfer_core.text.tokenizer import lone_surrogate

MAX_LINE_BYTES = 64 << 20  # a longer line is refused without being held in memory

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_LINE_BREAKS = {"\u0085": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}  # line ends to some readers


class Digest(Protocol):
    """A hash of `hashlib` that grows."""

    def update(self, data: bytes, /) -> None: ...


def read_lines(file: BinaryIO, digest: Digest, limit: int = MAX_LINE_BYTES) -> Iterator[tuple[int, bytes | None]]:
    """(number from 1, content) of each line that is not blank; None as content when it is longer than `limit`.

    Lines end at a newline alone; a byte order mark before the first and a carriage return at the end of each are
    dropped. Every byte of the file goes through `digest`.
    """
    number = 0
    while part := file.readline(limit + 1):
        number += 1
        digest.update(part)
        content: bytes | None = part
        while not part.endswith(b"\n") and len(part) > limit:
            content = None
            part = file.readline(limit + 1)
            digest.update(part)
        if content is not None:
            content = content.removeprefix(_BYTE_ORDER_MARK if number == 1 else b"").strip()
        if content != b"":
            yield number, content


def decode_object(raw: bytes) -> dict[str, Any]:
    """The JSON object on one line. Raises `RequestError` for anything else: NaN, a key given twice and numbers too
    large for a float are refused too. Nesting too deep for this interpreter is a `RecursionError`."""
    try:
        value = _DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RequestError(f"the line is not UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise RequestError(f"the line is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestError(f"the line is not a JSON object: it holds {json_kind(value)}")
    return value


def refuse_surrogates(raw: bytes, found: dict[str, Any]) -> None:
    """Raise `RequestError` when the object of the line `raw` holds half a surrogate pair outside its custom_id."""
    if _SURROGATE_ESCAPE.search(raw):
        _refuse_surrogates({key: part for key, part in found.items() if key != "custom_id"}, "")


def encode_line(record: dict[str, Any]) -> bytes:
    """One line, newline included, that any JSON reader takes. Half a surrogate pair survives as an escape."""
    text = _READABLE.encode(record)
    if lone_surrogate(text) is not None:
        text = _ESCAPED.encode(record)
    for character, escape in _LINE_BREAKS.items():
        text = text.replace(character, escape)
    return text.encode() + b"\n"


def json_kind(value: object) -> str:
    """What JSON calls `value`, for messages."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value), "an object")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = (key for key, _ in pairs)
        twice = next(key for key, count in Counter(keys).items() if count > 1)
        raise ValueError(f"the key {shown(twice)} is given twice")
    return found


def _refuse_surrogates(value: object, path: str) -> None:
    if isinstance(value, str) and (position := lone_surrogate(value)) is not None:
        raise RequestError(f"{path} holds half of a surrogate pair at character {position}: it is no character")
    if isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_surrogates(item, f"{path}[{index}]")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_surrogates(key, f"a key of {path}" if path else "a key")
            _refuse_surrogates(item, f"{path}.{key}" if path else key)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique_keys)
_READABLE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ESCAPED = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
