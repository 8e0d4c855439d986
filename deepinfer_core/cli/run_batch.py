"""`deepinfer run-batch`: answers every request of a JSONL file. The run itself is `batchio/runner.py`'s."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.api.config import EngineConfig
from deepinfer_core.api.errors import DeviceError, RequestError
from deepinfer_core.cli.options import add_engine_options, add_sampling_options, engine_config, load, sampling_values

if TYPE_CHECKING:
    from deepinfer_core.batchio.runner import Summary

HELP = "answer every request of a JSONL file"

# Engine options that no answer depends on: a run may be resumed with others.
_FREE = {
    "device_index",
    "max_running",
    "max_step_tokens",
    "cache_tokens",
    "cache_memory",
    "scheduler",
    "overlap",
    "strict",
}


def configure(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("-i", "--input", type=Path, required=True, metavar="FILE", help="requests, one a line")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="records, one for each request"
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="go on with a run that was cut short")
    again.add_argument("--overwrite", action="store_true", help="start again, dropping the records that are there")
    parser.add_argument(
        "--order", choices=("input", "completion"), default="input", help="of the records (default: input)"
    )
    parser.add_argument("--no-progress", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    add_engine_options(parser)
    add_sampling_options(parser)
    parser.epilog = "Sampling options are for requests that do not say otherwise."


def run(args: Namespace) -> int:
    """0 when every request is answered, 1 when some are not, by this run or by the one that it went on with."""
    from deepinfer_core.batchio.runner import BatchOptions, run_batch
    from deepinfer_core.observe.progress import NoProgress, make_progress

    config = engine_config(args)
    defaults = sampling_values(args)
    options = BatchOptions(
        model=Path(config.model).resolve().name,
        settings=_settings(config, defaults),
        defaults=defaults,
        seed=config.seed,
        order=args.order,
        resume=args.resume,
        overwrite=args.overwrite,
    )
    try:
        with NoProgress() if args.no_progress else make_progress() as progress:
            summary = run_batch(args.input, args.output, lambda: load(args, config), options, progress)
    except (DeviceError, KeyboardInterrupt):
        print(f"finished answers are kept: go on with --resume -o {args.output}", file=sys.stderr)
        raise
    _show(summary, args)
    return RequestError.exit_code if summary.failed + summary.resumed_failed else 0


def _settings(config: EngineConfig, defaults: dict[str, Any]) -> dict[str, Any]:
    """What answers depend on, for the manifest."""
    engine = {name: value for name, value in asdict(config).items() if name not in _FREE}
    return engine | {f"default {name}": value for name, value in defaults.items()}


def _show(summary: Summary, args: Namespace) -> None:
    if args.json:
        print(json.dumps(asdict(summary) | {"tokens_per_second": summary.tokens_per_second}))
        return
    if summary.models:
        print(
            f"warning: requests name other models ({', '.join(summary.models)}): answered by the loaded one",
            file=sys.stderr,
        )
    resumed = f", {summary.resumed} from before ({summary.resumed_failed} failed)" if summary.resumed else ""
    print(
        f"{summary.requests} requests: {summary.succeeded} answered, {summary.failed} failed{resumed}; "
        f"{summary.prompt_tokens} prompt and {summary.completion_tokens} answer tokens "
        f"in {summary.seconds:.1f} s, {summary.tokens_per_second:.1f} tokens/s -> {args.output}"
    )
