"""The `deepinfer` program: finds the command, runs it, and turns whatever happens into a message and an exit code.

Nothing heavy is imported here; a command's module is imported when it is asked for.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, NoReturn, cast

from deepinfer_core.api.config import read_environment
from deepinfer_core.api.errors import ConfigError, DeepInferError, DeviceError, nearest
from deepinfer_core.observe import log

if TYPE_CHECKING:
    from deepinfer_core.plugin.hookspecs import Command

# name -> (module, what `deepinfer --help` says of it: the module's HELP)
COMMANDS: Mapping[str, tuple[str, str]] = {
    "generate": ("deepinfer_core.cli.generate", "answer prompts given on the command line or on standard input"),
    "run-batch": ("deepinfer_core.cli.run_batch", "answer every request of a JSONL file"),
    "chat": ("deepinfer_core.cli.chat", "talk with a model"),
    "timeline": (
        "deepinfer_core.cli.timeline",
        "show how the host's work overlaps with the device's: a trace, a picture, a summary",
    ),
    "bench": ("deepinfer_core.cli.bench", "measure the scheduler, whole answers, prefix hits, or single operations"),
    "doctor": (
        "deepinfer_core.cli.doctor",
        "check the installation: versions, plugins, backends, and one computation on the chosen device",
    ),
    "plugins": (
        "deepinfer_core.cli.plugins",
        "list the installed plugins, what each provides and why one failed to load",
    ),
}

EXIT_CODES = """exit codes:
  0    all done
  1    some requests failed
  2    wrong usage: an option, a file, a model or a plugin
  3    the engine or its device died
  130  interrupted
"""

_INTERRUPTED = 130
_BROKEN_PIPE = 141
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # of no named file: files have errors of their own


class _Parser(ArgumentParser):
    """Its complaints are JSON too where everything is."""

    def error(self, message: str) -> NoReturn:
        if log.is_json():
            raise ConfigError(f"{message}; see {self.prog} --help")
        super().error(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's) and return its exit code."""
    _prepare_streams()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()  # while a full disk or a closed pipe can still be reported
        return code
    except DeepInferError as error:
        _say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        if argv is None:  # the process is ours: another Ctrl-C must not break into the interpreter's own end
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _say("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return _BROKEN_PIPE
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            _drop_output()
            _say(f"standard output cannot be written: {error.strerror}")
            return ConfigError.exit_code
        _say("this is a fault of ours, not of your input: please report it with its traceback", fault=error)
        return DeviceError.exit_code


def _prepare_streams() -> None:
    """Standard streams that were closed before we started are empty ones, and their descriptors are taken before a
    file of ours gets them. Characters of an answer that the output's encoding lacks are shown as escapes."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  # until the process ends
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # likewise
    if sys.stderr is None:  # print would take standard output instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # likewise
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Standard output takes no more: without this the interpreter complains again when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _run(words: list[str]) -> int:
    json_lines = _take(words, "--log-json")
    log.set_up("warning", json_lines)
    if not words or words[0] in ("-h", "--help"):
        print(_help(), file=sys.stdout if words else sys.stderr)
        return 0 if words else ConfigError.exit_code
    if words[0] == "--version":
        print(f"deepinfer {_version()}")
        return 0
    log.set_up(read_environment().log_level, json_lines)
    command = _command(words[0])
    parser = _Parser(prog=f"deepinfer {words[0]}", description=command.HELP)
    command.configure(parser)
    try:
        args = parser.parse_args(words[1:])
    finally:
        sys.stdout.flush()  # the command's help may be in it, after which the parser leaves
    return command.run(args)


def _take(words: list[str], flag: str) -> bool:
    """Remove a flag that every command has, wherever it stands before `--`; whether it was there."""
    end = words.index("--") if "--" in words else len(words)
    options = [word for word in words[:end] if word != flag]
    found = len(options) < end
    words[:end] = options
    return found


def _command(name: str) -> Command:
    """A command of ours, or one that a plugin registered."""
    if name in COMMANDS:
        return cast("Command", importlib.import_module(COMMANDS[name][0]))
    if name.startswith("-"):
        raise ConfigError(f"unknown option {name!r}: options come after the command; see deepinfer --help")
    from deepinfer_core.plugin.loader import load_plugins

    added = load_plugins(read_environment()).registry.commands
    if name in added:
        return added[name]
    known = [*COMMANDS, *added]
    raise ConfigError(f"unknown command {name!r}{nearest(name, known)}; commands: {', '.join(known)}")


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: deepinfer COMMAND [options]",
            "       deepinfer COMMAND --help",
            "       deepinfer --version",
            "",
            "  --log-json  with any command: what is said on standard error is one JSON object a line",
            "",
            "commands:",
            *lines,
            "",
            "Plugins may add commands: `deepinfer plugins` lists them.",
            "",
            EXIT_CODES.rstrip(),
        ]
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("deepinfer-core")
    except PackageNotFoundError:
        return "(not installed)"


def _say(message: str, fault: BaseException | None = None) -> None:
    log.tell(message, logging.ERROR, label="deepinfer: ", fault=fault)
