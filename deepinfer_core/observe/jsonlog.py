"""Log records as JSON, one object a line, that any JSON reader takes whatever is in them."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_OURS = frozenset({"time", "level", "logger", "message", "exception", "stack"})

_Fault = tuple[type[BaseException], BaseException, TracebackType | None]


class JsonFormatter(logging.Formatter):
    """time (ISO 8601, UTC), level, logger, message, whatever `extra` gave, and the exception if there was one.

    A field of `extra` that is named like one of ours gets an underscore at its end. Half a surrogate pair becomes
    U+FFFD, and a value that JSON cannot hold becomes text.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        for name, value in vars(record).items():
            if name not in _STANDARD:
                line[f"{name}_" if name in _OURS else name] = value
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = self._exception(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return "{" + ", ".join(f"{_json(name)}: {_json(value)}" for name, value in line.items()) + "}"

    def _exception(self, fault: _Fault) -> dict[str, str]:
        kind, error, _ = fault
        return {"type": kind.__name__, "message": _text(error), "traceback": self.formatException(fault)}


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # arguments that do not fit the text, or cannot be shown
        return f"{record.msg} (arguments left out: {type(error).__name__})"


def _json(value: object) -> str:
    """Pure ASCII. Anything in `extra` may be of any type."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_text)
    except (TypeError, ValueError, RecursionError):  # NaN, keys of other types, cycles
        text = json.dumps(_text(value), ensure_ascii=False)
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.dumps(json.loads(whole))


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__} without text: {type(error).__name__}>"
