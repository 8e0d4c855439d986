"""`deepinfer new-backend` and `deepinfer new-plugin`: what they ask for and what they say."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from shlex import quote

from deepinfer_conformance.scaffold.names import Names, check_free, check_name
from deepinfer_conformance.scaffold.write import PLUGIN_KINDS, render, write_package
from deepinfer_core.api.config import read_environment
from deepinfer_core.plugin.loader import load_plugins


class NewBackend:
    """`deepinfer new-backend NAME [DIR]`."""

    HELP = "write a backend package that works at once, to put your own kernels into"

    def configure(self, parser: ArgumentParser) -> None:
        """Add the command's options."""
        _add_arguments(parser, "backend", "what --backend will take")

    def run(self, args: Namespace) -> int:
        """0 when the package is written."""
        names = check_name(args.name, "backend")
        folder = _write("backend", names, args.folder)
        print(
            f"next:\n  python -m pip install -e {quote(str(folder))}\n  deepinfer doctor --backend {names.name}\n"
            f"  deepinfer conformance {names.name}"
        )
        return 0


class NewPlugin:
    """`deepinfer new-plugin NAME [--kind KIND] [DIR]`."""

    HELP = "write a plugin package that works at once: a constraint, a drafter or a logits processor"

    def configure(self, parser: ArgumentParser) -> None:
        """Add the command's options."""
        _add_arguments(parser, "plugin", "what requests will name it by")
        parser.add_argument(
            "--kind", choices=PLUGIN_KINDS, default=PLUGIN_KINDS[0], help="what it gives (default: %(default)s)"
        )
        # Otherwise DIR must not stand behind --kind: an optional positional is given up at the first option.
        parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]  # of this parser alone

    def run(self, args: Namespace) -> int:
        """0 when the package is written."""
        names = check_name(args.name, "plugin")
        folder = _write(args.kind, names, args.folder)
        where = quote(str(folder))
        print(f"next:\n  python -m pip install -e {where}\n  python -m pytest {where}/tests\n  deepinfer plugins")
        return 0


def _add_arguments(parser: ArgumentParser, family: str, use: str) -> None:
    parser.add_argument("name", metavar="NAME", help=f"{use}: lower-case letters, digits and '-'")
    parser.add_argument(
        "folder",
        metavar="DIR",
        nargs="?",
        type=Path,
        help=f"an empty or a new folder (default: deepinfer-{family}-NAME)",
    )


def _write(kind: str, names: Names, folder: Path | None) -> Path:
    """Write the package, say what was written, and return where."""
    check_free(names, kind, load_plugins(read_environment(), stop=False))
    folder = folder or Path(names.distribution)
    files = render(kind, names)
    write_package(files, folder)
    print(f"{names.distribution}, written to {folder}:")
    for name in files:
        print(f"  {name}")
    return folder
