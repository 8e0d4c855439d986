"""`deepinfer chat`: a conversation with a model, typed or piped, one message a line."""

from __future__ import annotations

import io
import json
import logging
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from deepinfer_core.api.errors import ConfigError, InputFileError, RequestError
from deepinfer_core.cli.options import add_engine_options, add_sampling_options, engine_config, load, sampling_values
from deepinfer_core.observe import log

if TYPE_CHECKING:
    from deepinfer_core.api.llm import LLM, OnDelta
    from deepinfer_core.text.chat import ChatAnswer, ChatDelta

HELP = "talk with a model"

_PROMPT = "> "
_COMMANDS = "/reset forgets the conversation, /exit (or end of file) leaves"


def configure(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the conversation")
    parser.add_argument("--no-thinking", action="store_true", help="answer at once")
    parser.add_argument("--show-thinking", action="store_true", help="print the thoughts before each answer")
    parser.add_argument("--json", action="store_true", help="print one JSON object an answer")
    add_engine_options(parser)
    add_sampling_options(parser)


def run(args: Namespace) -> int:
    """0 when every message was answered, 1 when some were not."""
    typed = sys.stdin.isatty()
    config = engine_config(args)
    params = sampling_values(args)
    if params.get("n", 1) != 1:
        raise ConfigError(f"n = {params['n']} is not allowed: a conversation goes on from one answer; leave it out")
    with load(args, config) as llm:
        talk = Talk(llm, params, args.system, not args.no_thinking)
        if typed:
            log.tell(_COMMANDS)
        failed = 0
        for message in _messages(typed):
            if typed and message == "/exit":
                break
            if typed and message == "/reset":
                talk.reset()
            else:
                failed += not _answer(talk, message, args, typed)
    return RequestError.exit_code if failed and not typed else 0


class Talk:
    """A conversation so far. A message that could not be answered is not part of it."""

    def __init__(self, llm: LLM, params: dict[str, Any], system: str | None, thinking: bool) -> None:
        self._llm = llm
        self._params = params
        self._options: dict[str, Any] = {} if thinking else {"thinking": {"type": "disabled"}}
        self._opening = [] if system is None else [{"role": "system", "content": system}]
        self._turns: list[dict[str, str]] = []

    def reset(self) -> None:
        """Forget all but the system text."""
        self._turns.clear()

    def ask(self, message: str, on_delta: OnDelta | None = None) -> ChatAnswer:
        """Raises the request's error when it has no answer."""
        asked = {"role": "user", "content": message}
        messages = [*self._opening, *self._turns, asked]
        found = self._llm.chat(messages, self._params, on_delta=on_delta, **self._options)
        if found.output.error is not None:
            raise found.output.error
        answer = found.answers[0]
        self._turns += [asked, {"role": "assistant", "content": answer.content}]
        return answer


def _messages(typed: bool) -> Iterator[str]:
    """Lines that are not blank, until the end of standard input."""
    if typed:
        import readline  # noqa: F401  # gives input() its line editing
    elif isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")

    while True:
        try:
            line = input(_prompt() if typed else "")
        except EOFError:
            return
        except UnicodeDecodeError as error:
            raise InputFileError(
                f"standard input is not {error.encoding}: {error.reason} at byte {error.start}"
            ) from error
        if line.strip():
            yield line.strip()


def _prompt() -> str:
    """What asks for a message on standard output; where that is a file, the terminal is asked by other means."""
    if sys.stdout.isatty():
        return _PROMPT
    print(_PROMPT, end="", file=sys.stderr, flush=True)
    return ""


def _answer(talk: Talk, message: str, args: Namespace, typed: bool) -> bool:
    """Answer one message on standard output. While typing, Ctrl-C stops the answer and not the conversation."""
    page = _Page(args.show_thinking)
    try:
        answer = talk.ask(message, None if args.json else page.add)
    except RequestError as error:
        page.end()
        log.tell(str(error), logging.WARNING, label="deepinfer: ")
        return False
    except KeyboardInterrupt:
        page.end()
        if not typed:
            raise
        log.tell("(stopped)")
        return False
    if args.json:
        print(json.dumps(_record(answer)), flush=True)
    else:
        page.close(answer)
    return True


class _Page:
    """One answer on standard output, while it is written: thoughts if they are wanted, content, then tool calls."""

    def __init__(self, show_thinking: bool) -> None:
        self._show_thinking = show_thinking
        self._thinking = self._open = False

    def add(self, _: int, delta: ChatDelta) -> None:
        """Show more of the answer."""
        if delta.reasoning and self._show_thinking:
            self._write(delta.reasoning if self._thinking else f"<think>{delta.reasoning}")
            self._thinking = True
        if delta.content:
            self._end_thoughts()
            self._write(delta.content)

    def close(self, answer: ChatAnswer) -> None:
        """What is known at the end alone. An answer without any text is an empty line."""
        self._end_thoughts()
        if self._open or not answer.tool_calls:
            print(flush=True)
        for call in answer.tool_calls:
            print(f"[{call.name} {call.arguments}]", flush=True)
        if answer.finish_reason == "length":
            log.tell("(cut short by max_tokens)")

    def end(self) -> None:
        """End the line of an answer that was broken off."""
        if self._open:
            print(flush=True)

    def _end_thoughts(self) -> None:
        if self._thinking:
            self._write("</think>\n")
            self._thinking = self._open = False

    def _write(self, text: str) -> None:
        print(text, end="", flush=True)
        self._open = True


def _record(answer: ChatAnswer) -> dict[str, Any]:
    calls = [{"name": call.name, "arguments": call.arguments} for call in answer.tool_calls]
    return {
        "content": answer.content,
        "reasoning_content": answer.reasoning,
        "tool_calls": calls,
        "finish_reason": answer.finish_reason,
    }
