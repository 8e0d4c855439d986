"""The program's one logger setup, and what it says to its user beside the log. Libraries and plugins only ask for
loggers; the command line calls this."""

from __future__ import annotations

import logging
import sys
import traceback

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.observe.jsonlog import JsonFormatter

LEVELS = ("debug", "info", "warning", "error")


def set_up(level: str, json_lines: bool = False) -> None:
    """Log to standard error: ours and the plugins' from `level` up, other packages' from warning up. With `json_lines`
    one JSON object a line, and Python's own warnings among them."""
    if level not in LEVELS:
        raise ConfigError(f"DEEPINFER_LOG = {level!r} is not allowed: choose one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if json_lines else logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_worth_showing)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(json_lines)


def is_json() -> bool:
    """Whether standard error carries JSON lines."""
    return _json_handler() is not None


def tell(message: str, level: int = logging.INFO, *, label: str = "", fault: BaseException | None = None) -> None:
    """Tell the user something, whatever the log's level: a line on standard error, which begins with `label`, or a
    record where the log is JSON. `fault` is shown with its traceback."""
    handler = _json_handler()
    if handler is None:
        if fault is not None:
            traceback.print_exception(fault)
        print(f"{label}{message}", file=sys.stderr, flush=True)
        return
    fields = {"name": "deepinfer", "levelno": level, "levelname": logging.getLevelName(level), "msg": message}
    if fault is not None:
        fields["exc_info"] = (type(fault), fault, fault.__traceback__)
    handler.handle(logging.makeLogRecord(fields))


def _json_handler() -> logging.Handler | None:
    handlers = logging.getLogger().handlers
    return next((one for one in handlers if isinstance(one.formatter, JsonFormatter)), None)


def _worth_showing(record: logging.LogRecord) -> bool:
    return record.name.startswith("deepinfer") or record.levelno >= logging.WARNING
