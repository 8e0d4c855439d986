"""Options that commands share: those of the engine, of sampling, and the settings file."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.api.config import EngineConfig
from deepinfer_core.api.errors import ConfigError, RequestError
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.observe import log

if TYPE_CHECKING:
    from deepinfer_core.api.llm import LLM
    from deepinfer_core.interfaces.observer import Observer

_ENGINE = (
    "model",
    "backend",
    "dtype",
    "prefill",
    "max_running",
    "max_step_tokens",
    "max_length",
    "cache_tokens",
    "prefix_cache",
    "replay",
    "strict",
)
_MOST = 100_000  # of whatever is counted: more measures nothing new and may take all memory
_SAMPLING = ("n", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop")


def add_engine_options(parser: ArgumentParser) -> None:
    """Everything in `EngineConfig`: the common options by name, all of them through --set."""
    group = parser.add_argument_group("engine", "an option here wins over --set, and --set over --config")
    group.add_argument("-m", "--model", help="a model folder, or the name of a model source (default: demo)")
    group.add_argument("--backend", help="what to run on (default: the one that was built, or the only accelerator)")
    group.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), help="of computation")
    group.add_argument("--prefill", choices=("bounded", "exact"), help="which prompt rows run the model's second half")
    group.add_argument("--max-running", type=int, metavar="N", help="requests decoded together")
    group.add_argument("--max-step-tokens", type=int, metavar="N", help="rows a step")
    group.add_argument("--max-length", type=int, metavar="N", help="tokens of a prompt and its answer")
    group.add_argument("--cache-tokens", type=int, metavar="N", help="tokens that the cache holds")
    group.add_argument(
        "--no-prefix-cache",
        dest="prefix_cache",
        action="store_false",
        default=None,
        help="compute every prompt from its first token, whatever was computed before",
    )
    group.add_argument("--replay", choices=("exact", "bounded"), help="how a prefix hit rebuilds sliding windows")
    group.add_argument(
        "--strict", action="store_true", default=None, help="no substitutes: what is missing is an error"
    )
    group.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="any engine option")
    group.add_argument("--config", type=Path, metavar="FILE", help="a TOML file of engine options")
    group.add_argument("--quiet", action="store_true", help="do not say what the model runs on")


def engine_config(args: Namespace) -> EngineConfig:
    """The options as given. Raises `ConfigError`."""
    values = {} if args.config is None else _read_toml(args.config)
    values |= dict(map(_setting, args.set))
    values |= {name: getattr(args, name) for name in _ENGINE if getattr(args, name) is not None}
    return EngineConfig.from_dict(values)


def load(args: Namespace, config: EngineConfig, observers: Sequence[Observer] = ()) -> LLM:
    """Load the model and say on standard error what it runs on."""
    from deepinfer_core.api.llm import LLM

    llm = LLM(observers=observers, **asdict(config))
    say_report(args, llm.report)
    return llm


def say_report(args: Namespace, report: Iterable[str]) -> None:
    """What an engine runs on, unless --quiet."""
    if not args.quiet:
        for line in report:
            log.tell(line)


def count(text: str) -> int:
    """An argument that counts something to be measured."""
    if not text.isdecimal() or len(text) > len(str(_MOST)) or not 1 <= int(text) <= _MOST:
        raise ArgumentTypeError(f"{text!r} is not allowed: give a whole number from 1 to {_MOST}")
    return int(text)


def add_sampling_options(parser: ArgumentParser) -> None:
    """Everything in `SamplingParams`: the common ones by name, all of them through --param."""
    group = parser.add_argument_group("sampling", "an option here wins over --param")
    group.add_argument("-n", type=int, metavar="N", help="answers a prompt")
    group.add_argument("--max-tokens", type=int, metavar="N", help="tokens of an answer (default: 128)")
    group.add_argument("--temperature", type=float, metavar="T", help="0 is greedy (default: 1)")
    group.add_argument("--top-p", type=float, metavar="P", help="draw from the likeliest tokens of this total share")
    group.add_argument("--top-k", type=int, metavar="K", help="draw from so many of the likeliest tokens")
    group.add_argument("--min-p", type=float, metavar="P", help="leave out tokens below this share of the likeliest")
    group.add_argument("--seed", type=int, metavar="S", help="the same seed gives the same answer")
    group.add_argument("--stop", action="append", metavar="TEXT", help="end the answer before this text; repeatable")
    group.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="any sampling parameter")


def sampling_values(args: Namespace) -> dict[str, Any]:
    """The sampling parameters that were given, by name. Raises `ConfigError`: a wrong one is the command's fault, not
    that of a request."""
    given = {name: getattr(args, name) for name in _SAMPLING if getattr(args, name) is not None}
    values = dict(map(_setting, args.param)) | given
    try:
        SamplingParams.from_dict(values)
    except RequestError as error:
        raise ConfigError(str(error)) from error
    return values


def _setting(text: str) -> tuple[str, Any]:
    """`name=value`, the value as TOML writes it; what is no TOML value is a string."""
    import tomllib

    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"{text!r} is no setting: write NAME=VALUE")
    try:
        found = tomllib.loads(f"value = {value}")
    except ValueError:  # no TOML, or a number of thousands of digits
        found = {}
    return name.strip().replace("-", "_"), found["value"] if found.keys() == {"value"} else value


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
