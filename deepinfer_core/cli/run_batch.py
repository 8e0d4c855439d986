"""`deepinfer run-batch`: answers every request of a JSONL file. The run itself is `batchio/runner.py`'s."""

from __future__ import annotations

import json
import logging
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.api.config import EngineConfig, build_record, read_environment
from deepinfer_core.api.errors import DeviceError, RequestError
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.cli.options import add_engine_options, add_sampling_options, engine_config, load, sampling_values
from deepinfer_core.cli.watching import add_watching_options, watching
from deepinfer_core.observe import log

if TYPE_CHECKING:
    from deepinfer_core.batchio.runner import Summary

HELP = "answer every request of a JSONL file"

_EPILOG = """Sampling options are for requests that do not say otherwise. Ctrl-C or SIGTERM finishes the requests in
flight and stops; a second one drops them. docs/batch.md describes lines, records and resuming.

exit codes:
  0    every request is answered
  1    some requests have an error for a record
  2    wrong usage, an input or model that cannot be used, or an output that cannot be written (a full disk)
  3    the engine or its device died: finished answers are kept
  130  interrupted: finished answers are kept
"""

# Engine options that no answer depends on: a run may be resumed with others. The model and the backend are compared by
# what they turn out to be.
_FREE = {
    "model",
    "backend",
    "device_index",
    "max_running",
    "max_step_tokens",
    "cache_tokens",
    "cache_memory",
    "scheduler",
    "prefix_cache",
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
        "--retry-failed", action="store_true", help="resume, and answer again what has an error for a record"
    )
    parser.add_argument(
        "--order", choices=("input", "completion"), default="input", help="of the records (default: input)"
    )
    parser.add_argument("--no-progress", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    add_engine_options(parser)
    add_sampling_options(parser)
    add_watching_options(parser)
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter


def run(args: Namespace) -> int:
    """0 when every request is answered, 1 when some are not, by this run or by the one that it went on with."""
    from deepinfer_core.batchio.options import BatchOptions
    from deepinfer_core.batchio.runner import run_batch
    from deepinfer_core.observe.progress import NoProgress, make_progress

    config = engine_config(args)
    defaults = sampling_values(args)
    name = Path(config.model).resolve().name
    options = BatchOptions(
        model=name,
        settings={"model": name, **_settings(config, defaults)},
        identity=lambda: _identity(config),
        versions=_versions(),
        defaults=defaults,
        seed=config.seed,
        order=args.order,
        resume=args.resume,
        retry_failed=args.retry_failed,
        overwrite=args.overwrite,
    )
    try:
        with watching(args) as observers, NoProgress() if args.no_progress else make_progress() as progress:
            summary = run_batch(args.input, args.output, lambda: load(args, config, observers), options, progress)
    except (DeviceError, KeyboardInterrupt):
        log.tell(f"finished answers are kept: go on with --resume -o {args.output}")
        raise
    _show(summary, args)
    return RequestError.exit_code if summary.failed + summary.resumed_failed else 0


def _settings(config: EngineConfig, defaults: dict[str, Any]) -> dict[str, Any]:
    """The options and default parameters that answers depend on, for the manifest."""
    engine = {name: value for name, value in asdict(config).items() if name not in _FREE}
    if not config.prefix_cache:
        engine["replay"] = "exact"  # nothing is replayed: the same answers
    return engine | {f"default {name}": value for name, value in asdict(SamplingParams(**defaults)).items()}


def _identity(config: EngineConfig) -> dict[str, str]:
    """What the model and the backend are, whatever they were called."""
    from deepinfer_core.batchio.fingerprint import model_fingerprint
    from deepinfer_core.loading.resolve import resolve_model
    from deepinfer_core.plugin.choose import choose_backend
    from deepinfer_core.plugin.loader import load_plugins

    environment = read_environment()
    registry = load_plugins(environment, stop=False).registry  # the engine loads them again, and says what is wrong
    backend = choose_backend(registry, config.backend, environment, build_record()).backend
    return {"backend": backend.name, **model_fingerprint(resolve_model(config.model, registry))}


def _versions() -> dict[str, str]:
    """Of what computes the answers."""
    found = {}
    for package in ("deepinfer-core", "torch"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _show(summary: Summary, args: Namespace) -> None:
    if args.json:
        print(json.dumps(asdict(summary) | {"tokens_per_second": summary.tokens_per_second}))
        return
    if summary.models:
        text = f"requests name other models ({', '.join(summary.models)}): answered by the loaded one"
        log.tell(text, logging.WARNING, label="warning: ")
    resumed = f", {summary.resumed} from before ({summary.resumed_failed} failed)" if summary.resumed else ""
    print(
        f"{summary.requests} requests: {summary.succeeded} answered, {summary.failed} failed{resumed}; "
        f"{summary.prompt_tokens} prompt and {summary.completion_tokens} answer tokens "
        f"in {summary.seconds:.1f} s, {summary.tokens_per_second:.1f} tokens/s -> {args.output}"
    )
