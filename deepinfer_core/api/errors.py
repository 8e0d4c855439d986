"""Every error that a user can cause or must act on. An assertion, by contrast, is a fault of ours.

A message says what is wrong, where, what is allowed and what to do next, in that order. `code` is stable and is what
an error record carries.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_SHOWN = 200  # characters of a value that a message quotes


class DeepInferError(Exception):
    """Base of all. `exit_code` is what the command line ends with when the error reaches it."""

    code = "error"
    exit_code = 2


class ConfigError(DeepInferError):
    """An engine option is wrong, or asks for what the chosen backend does not promise."""

    code = "invalid_config"


class PluginError(DeepInferError):
    """A plugin or backend could not be found, loaded or trusted."""

    code = "plugin_error"


class CheckpointError(DeepInferError):
    """A model folder is not what it must be. The message lists every fault found."""

    code = "invalid_checkpoint"


class InputFileError(DeepInferError):
    """A batch file, or the place for its answers, cannot be used as asked."""

    code = "invalid_input_file"


class RequestError(DeepInferError):
    """One request cannot be served. It fails alone."""

    code = "invalid_request"
    exit_code = 1


class PromptTooLong(RequestError):
    """The prompt leaves no room in the context for even one token."""

    code = "prompt_too_long"


class RequestTooLarge(RequestError):
    """Prompt and answer together can never fit the cache."""

    code = "request_too_large"


class UnsupportedRequest(RequestError):
    """The request asks for something that this model or installation cannot do."""

    code = "unsupported"


class GenerationError(RequestError):
    """A request began and could not be finished: no token was allowed, or its logits were not numbers."""

    code = "generation_failed"


class DeviceError(DeepInferError):
    """The device or its queue failed. The engine cannot go on; finished answers are kept."""

    code = "device_failed"
    exit_code = 3


def shown(value: object) -> str:
    """`value` as a message quotes it: its repr, cut short. Python refuses to write numbers of thousands of digits, and
    what is nested thousands deep."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"<{type(value).__name__} too large to write>"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
