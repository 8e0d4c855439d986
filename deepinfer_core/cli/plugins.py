"""`deepinfer plugins`: what is installed, what became of each plugin and what it provides."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict

from deepinfer_core.api.config import read_environment
from deepinfer_core.plugin.loader import Outcome, Plugins, load_plugins

HELP = "list the installed plugins, what each provides and why one failed to load"


def configure(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--traceback", action="store_true", help="show where a failing plugin failed")


def run(args: Namespace) -> int:
    """Nothing is stopped by a failing plugin here, not even under DEEPINFER_PLUGINS_STRICT: this is where one looks."""
    plugins = load_plugins(read_environment(), stop=False)
    if args.json:
        print(json.dumps({"plugins": list(map(asdict, plugins.outcomes)), "problems": plugins.problems}, indent=2))
    else:
        print("\n".join(_lines(plugins, args.traceback)))
    return 0


def _table(outcomes: tuple[Outcome, ...]) -> Iterator[str]:
    """A line for each plugin, in columns."""
    width = max((len(outcome.plugin) for outcome in outcomes), default=0)
    origins = [f"{outcome.distribution} {outcome.version}".strip() for outcome in outcomes]
    origin_width = max(map(len, origins), default=0)
    for outcome, origin in zip(outcomes, origins, strict=True):
        what = ", ".join(outcome.provides) if outcome.status == "loaded" else outcome.reason
        yield f"{outcome.plugin:{width}}  {origin:{origin_width}}  {outcome.status:8}  {what}".rstrip()


def _lines(plugins: Plugins, with_traceback: bool) -> Iterator[str]:
    if not plugins.outcomes:
        yield "no plugins are installed"
    yield from _table(plugins.outcomes)
    for outcome in plugins.outcomes:
        if with_traceback and outcome.traceback:
            yield f"\n{outcome.plugin}:\n{outcome.traceback.rstrip()}"
    yield from (f"warning: {problem}" for problem in plugins.problems)
