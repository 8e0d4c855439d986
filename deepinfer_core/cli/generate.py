"""`deepinfer generate`: answers prompts given on the command line or on standard input."""

from __future__ import annotations

import logging
import re
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.api.errors import ConfigError, InputFileError, RequestError, shown
from deepinfer_core.cli.options import add_engine_options, add_sampling_options, engine_config, load, sampling_values
from deepinfer_core.cli.watching import add_watching_options, watching
from deepinfer_core.observe import log

if TYPE_CHECKING:
    from deepinfer_core.api.llm import LLM
    from deepinfer_core.api.outputs import CompletionOutput, RequestOutput

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
    """0 when every prompt was answered, 1 when some were not."""
    texts = args.prompt or [_standard_input()]
    prompts = [_ids(text) for text in texts] if args.ids else texts
    config = engine_config(args)
    params = sampling_values(args)
    with watching(args) as observers, load(args, config, observers) as llm:
        outputs = llm.generate(prompts, params)
        if args.json:
            _print_records(llm, outputs)
        else:
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


def _print_texts(llm: LLM, outputs: list[RequestOutput]) -> None:
    """The text of one answer alone; of several, each below a line that says which it is."""
    several = sum(max(1, len(output.outputs)) for output in outputs) > 1
    for number, output in enumerate(outputs, 1):
        if output.error is not None:
            log.tell(f"prompt {number}: {output.error}", logging.WARNING, label="deepinfer: ")
        for answer in output.outputs:
            if several:
                print(f"--- prompt {number}, answer {answer.index + 1}")
            print(_text(llm, answer))


def _text(llm: LLM, answer: CompletionOutput) -> str:
    return " ".join(map(str, answer.token_ids)) if llm.tokenizer is None else answer.text
