"""`deepinfer timeline`: records what host and device do, or reads such a record; sums it up and draws it."""

from __future__ import annotations

import json
import logging
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.api.config import EngineConfig, read_environment
from deepinfer_core.api.errors import ConfigError, RequestError
from deepinfer_core.cli.options import add_engine_options, count, engine_config, load, say_report
from deepinfer_core.cli.watching import recording
from deepinfer_core.observe import log
from deepinfer_core.observe.extras import require

if TYPE_CHECKING:
    from deepinfer_core.interfaces.observer import Observer
    from deepinfer_core.observe.trace import Trace

HELP = "show how the host's work overlaps with the device's: a trace, a picture, a summary"

PROMPTS, PROMPT_TOKENS, STEPS, DRAWN = 16, 64, 64, 4


def configure(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "recorded", nargs="?", type=Path, help="a trace from --timeline or --trace; without one, a small batch is run"
    )
    work = parser.add_argument_group("what is run")
    source = work.add_mutually_exclusive_group()
    source.add_argument("--prompts", type=count, metavar="N", help=f"random prompts (default: {PROMPTS})")
    source.add_argument("-i", "--input", type=Path, metavar="FILE", help="requests as run-batch takes them")
    work.add_argument("--prompt-tokens", type=count, metavar="N", help=f"of a random prompt (default: {PROMPT_TOKENS})")
    work.add_argument(
        "--steps", type=count, metavar="N", help=f"tokens of an answer that says nothing else (default: {STEPS})"
    )
    work.add_argument("--no-overlap", action="store_true", help="let the host wait for each step, for comparison")
    shown = parser.add_argument_group("what is made of it")
    shown.add_argument("--trace", type=Path, metavar="FILE", help="write the trace, for Perfetto or chrome://tracing")
    shown.add_argument("--png", type=Path, metavar="FILE", help="draw some steps of the steady state")
    shown.add_argument("--drawn", type=count, default=DRAWN, metavar="N", help=f"steps to draw (default: {DRAWN})")
    shown.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    add_engine_options(parser)


def run(args: Namespace) -> int:
    """0 when there is a summary, 1 when requests of the input file failed."""
    from deepinfer_core.observe.files import check_target
    from deepinfer_core.observe.overlap import measure_overlap, render

    if args.png is not None:
        require("matplotlib", "timeline", "--png")
        check_target(args.png)
    trace, failed = _recorded(args) if args.recorded is not None else _run(args)
    found = measure_overlap(trace)
    print(json.dumps(asdict(found)) if args.json else render(found))
    if args.png is not None:
        from deepinfer_core.observe.drawing import save_picture

        save_picture(trace, args.drawn, args.png)
    return RequestError.exit_code if failed else 0


def _recorded(args: Namespace) -> tuple[Trace, int]:
    from deepinfer_core.observe.trace import read_trace

    running = ("prompts", "input", "prompt_tokens", "steps", "no_overlap", "trace")
    given = [f"--{name.replace('_', '-')}" for name in running if getattr(args, name)]
    if given:
        raise ConfigError(f"{', '.join(given)}: only for a run, and {args.recorded} was recorded before; leave one out")
    return read_trace(args.recorded), 0


def _run(args: Namespace) -> tuple[Trace, int]:
    """What was recorded, and how many requests failed."""
    if args.input and args.prompt_tokens:
        raise ConfigError("--prompt-tokens is for random prompts, and --input brings its own: leave one out")
    config = engine_config(args)
    if args.no_overlap:
        config = replace(config, overlap=False)
    with ExitStack() as stack:
        if args.trace is not None:
            timeline = stack.enter_context(recording(args.trace))
        else:
            from deepinfer_core.observe.timeline import Timeline

            timeline = Timeline()
        failed = _run_file(args, config, [timeline]) if args.input else _run_prompts(args, config, [timeline])
    return timeline.trace, failed


def _run_prompts(args: Namespace, config: EngineConfig, observers: Sequence[Observer]) -> int:
    from deepinfer_core.bench.workload import random_requests, serve
    from deepinfer_core.engine.build import build_engine
    from deepinfer_core.plugin.loader import load_plugins

    environment = read_environment()
    built = build_engine(config, environment, load_plugins(environment), observers)
    try:
        say_report(args, built.report)
        sizes = args.prompts or PROMPTS, args.prompt_tokens or PROMPT_TOKENS, args.steps or STEPS
        serve(built, random_requests(built.info, *sizes))
    finally:
        built.close()
    return 0


def _run_file(args: Namespace, config: EngineConfig, observers: Sequence[Observer]) -> int:
    """Answer a batch file; the answers themselves are dropped."""
    from deepinfer_core.batchio.options import BatchOptions
    from deepinfer_core.batchio.runner import run_batch
    from deepinfer_core.observe.progress import NoProgress

    options = BatchOptions(model=Path(config.model).resolve().name, defaults={"max_tokens": args.steps or STEPS})
    with tempfile.TemporaryDirectory() as folder, NoProgress() as progress:
        answers = Path(folder) / "answers.jsonl"
        summary = run_batch(args.input, answers, lambda: load(args, config, observers), options, progress)
    if summary.failed:
        text = f"{summary.failed} of {summary.requests} requests failed: run-batch says why"
        log.tell(text, logging.WARNING, label="warning: ")
    return summary.failed
