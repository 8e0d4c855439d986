"""The program's one logger setup. Libraries and plugins only ask for loggers; the command line calls this once."""

from __future__ import annotations

import logging

from deepinfer_core.api.errors import ConfigError

LEVELS = ("debug", "info", "warning", "error")


def set_up(level: str) -> None:
    """Log to standard error: ours and the plugins' from `level` up, other packages' from warning up."""
    if level not in LEVELS:
        raise ConfigError(f"DEEPINFER_LOG = {level!r} is not allowed: choose one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_worth_showing)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _worth_showing(record: logging.LogRecord) -> bool:
    return record.name.startswith("deepinfer") or record.levelno >= logging.WARNING
