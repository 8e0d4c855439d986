"""`deepinfer bench`: measures, and prints each number beside what bounds it. What is measured and how is elsewhere."""

from __future__ import annotations

import json
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.options import add_engine_options, count, engine_config

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

HELP = "measure the scheduler, whole answers, prefix hits, or single operations"


def configure(parser: ArgumentParser) -> None:
    """Add one subcommand for each thing that can be measured."""
    what = parser.add_subparsers(required=True, metavar="WHAT")

    schedule = what.add_parser("schedule", help="host time of a step: plan, build and commit, without a device")
    schedule.add_argument("--running", type=_counts, default=[1, 16, 64, 256], metavar="N,N", help="requests at once")
    schedule.add_argument("--steps", type=count, default=500, metavar="N", help="decode steps for each (at least 2)")
    schedule.set_defaults(measure=_schedule)

    observers = what.add_parser("observers", help="what a timeline and metrics cost the host in a step")
    observers.add_argument("--steps", type=count, default=2000, metavar="N", help="steps for each (default: 2000)")
    observers.set_defaults(measure=_observers)

    throughput = what.add_parser("throughput", help="decoding speed, the share of kernels, and the memory floor")
    throughput.add_argument("--batch", type=_counts, default=[1, 8, 32], metavar="N,N", help="requests at once")
    throughput.add_argument("--prompt-tokens", type=count, default=64, metavar="N", help="of each prompt")
    throughput.add_argument("--answer-tokens", type=count, default=64, metavar="N", help="of each answer")
    throughput.set_defaults(measure=_throughput)

    ops = what.add_parser("ops", help="each operation of a decode step: kernel, reference, and the memory floor")
    ops.add_argument("--batch", type=count, default=1, metavar="N", help="requests in the step")
    ops.set_defaults(measure=_ops)

    prefix = what.add_parser("prefix", help="time to the first token, with and without a prefix hit")
    lengths = [512, 1024, 2048]
    prefix.add_argument("--prompt-tokens", type=_counts, default=lengths, metavar="N,N", help="of each prompt")
    prefix.add_argument("--repeats", type=count, default=5, metavar="N", help="prompts of each length (default: 5)")
    prefix.set_defaults(measure=_prefix)

    for one in (throughput, ops, prefix):
        add_engine_options(one)
    for one in (schedule, observers, throughput, ops, prefix):
        one.add_argument("--json", action="store_true", help="print one JSON object a line")


def run(args: Namespace) -> int:
    """0 when it was measured: no number is right or wrong here."""
    results, render = args.measure(args)
    print("\n".join(map(_json, results)) if args.json else render(results))
    return 0


_Measured = tuple[Sequence[Any], Callable[[Sequence[Any]], str]]  # results, and how people read them


def _schedule(args: Namespace) -> _Measured:
    from deepinfer_core.bench.schedule import measure_schedule, render

    return measure_schedule(args.running, max(args.steps, 2)), render


def _observers(args: Namespace) -> _Measured:
    from deepinfer_core.bench.observers import measure_observers, render

    return measure_observers(args.steps), render


def _throughput(args: Namespace) -> _Measured:
    from deepinfer_core.bench.throughput import measure_throughput, render

    return measure_throughput(engine_config(args), args.batch, args.prompt_tokens, args.answer_tokens), render


def _ops(args: Namespace) -> _Measured:
    from deepinfer_core.bench.ops import measure_ops, render

    return measure_ops(engine_config(args), args.batch), render


def _prefix(args: Namespace) -> _Measured:
    from deepinfer_core.bench.prefix import measure_prefix, render

    return measure_prefix(engine_config(args), args.prompt_tokens, args.repeats), render


def _json(result: DataclassInstance) -> str:
    """What was not measured is NaN, and null in JSON."""
    values = asdict(result)
    return json.dumps({name: None if _is_nan(value) else value for name, value in values.items()}, allow_nan=False)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _counts(text: str) -> list[int]:
    return [count(part) for part in text.split(",")]
