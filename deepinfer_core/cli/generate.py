"""`deepinfer generate`: answers prompts given on the command line or on standard input."""

from __future__ import annotations

import logging
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.api.errors import ConfigError, InputFileError, RequestError, shown
from deepinfer_core.api.interrupt import StopSignals
from deepinfer_core.cli.options import add_engine_options, add_sampling_options, engine_config, load, sampling_values
from deepinfer_core.cli.watching import add_watching_options, watching
from deepinfer_core.observe import log

if TYPE_CHECKING:
    from deepinfer_core.api.llm import LLM
    from deepinfer_core.api.outputs import CompletionOutput, RequestOutput
    from deepinfer_core.api.prompts import Prompt

HELP = "answer prompts given on the command line or on standard input"

_ID = re.compile("-?[0-9]{1,18}")  # which of them are tokens, the model says


def configure(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("prompt", nargs="*", help="without one, all of standard input is the prompt")
    parser.add_argument("--ids", action="store_true", help="prompts are token ids, separated by spaces or commas")
    parser.add_argument("--json", action="store_true", help="print one record a prompt, as run-batch writes them")
    add_engine_options(parser)
    add_sampling_options(parser)
    add_watching_options(parser)


def run(args: Namespace) -> int:
    """0 when every prompt was answered, 1 when some were not. SIGTERM ends it as Ctrl-C does."""
    texts = args.prompt or [_standard_input()]
    prompts = [_ids(text) for text in texts] if args.ids else texts
    config = engine_config(args)
    params = sampling_values(args)
    with StopSignals(), watching(args) as observers, load(args, config, observers) as llm:
        if args.json:
            outputs = llm.generate(prompts, params)
            _print_records(llm, outputs)
        elif len(prompts) == 1 and params.get("n", 1) == 1 and llm.tokenizer is not None:
            outputs = _print_live(llm, prompts, params)
            _tell_errors(outputs)
        else:
            outputs = llm.generate(prompts, params)
            _tell_errors(outputs)
            _print_texts(llm, outputs)
    return RequestError.exit_code if any(output.error for output in outputs) else 0


def _standard_input() -> str:
    if sys.stdin.isatty():
        raise ConfigError("no prompt: give one, or send it to standard input")
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InputFileError(f"standard input is not UTF-8: {error.reason} at byte {error.start}") from error


def _ids(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    for word in words:
        if not _ID.fullmatch(word):
            raise ConfigError(f"{shown(text)} is no list of token ids: {shown(word)} is no whole number")
    return list(map(int, words))


def _print_records(llm: LLM, outputs: list[RequestOutput]) -> None:
    import time

    from deepinfer_core.batchio.jsonl import encode_line
    from deepinfer_core.batchio.records import Answerer, Asked

    answerer = Answerer(Path(llm.config.model).resolve().name, int(time.time()), llm.tokenizer)
    for number, output in enumerate(outputs, 1):
        asked = Asked(number, f"prompt-{number}")
        sys.stdout.write(encode_line(answerer.record(asked, output)).decode())


def _print_live(llm: LLM, prompts: Sequence[Prompt], params: dict[str, Any]) -> list[RequestOutput]:
    """One answer's text while it is written."""
    outputs: list[RequestOutput] = []
    pieces = 0

    def show(_prompt: int, _answer: int, text: str) -> None:
        nonlocal pieces
        pieces += 1
        print(text, end="", flush=True)

    try:
        outputs = llm.generate(prompts, params, on_text=show)
    finally:
        if pieces or any(output.outputs for output in outputs):
            print(flush=True)
    return outputs


def _tell_errors(outputs: list[RequestOutput]) -> None:
    for number, output in enumerate(outputs, 1):
        if output.error is not None:
            log.tell(f"prompt {number}: {output.error}", logging.WARNING, label="deepinfer: ")


def _print_texts(llm: LLM, outputs: list[RequestOutput]) -> None:
    """The text of one answer alone; of several, each below a line that says which it is."""
    several = sum(max(1, len(output.outputs)) for output in outputs) > 1
    for number, output in enumerate(outputs, 1):
        for answer in output.outputs:
            if several:
                print(f"--- prompt {number}, answer {answer.index + 1}")
            print(_text(llm, answer))


def _text(llm: LLM, answer: CompletionOutput) -> str:
    return " ".join(map(str, answer.token_ids)) if llm.tokenizer is None else answer.text
