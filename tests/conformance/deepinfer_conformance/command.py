"""`deepinfer conformance NAME`: runs the suite on a backend and ends with its exit code. pytest does the rest."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from deepinfer_conformance.inventory import PACKAGE
from deepinfer_conformance.options import FLAGS, read_options
from deepinfer_core.api.errors import ConfigError

HELP = "check that a backend does what the contract promises, and print its report card"

_USAGE = 2


def configure(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("backend", metavar="NAME", help="a registered backend; `deepinfer plugins` lists them")
    for flag, settings in FLAGS.items():
        parser.add_argument(flag, **settings)
    parser.add_argument("-k", dest="keyword", metavar="EXPRESSION", help="only tests whose names match: no verdict")
    parser.add_argument("-x", dest="stop", action="store_true", help="stop at the first failure")
    parser.epilog = "Exit codes: 0 conforms, 1 does not, 2 wrong usage, 3 the backend is unknown or cannot run here."


def run(args: Namespace) -> int:
    """Raises `ConfigError` for a wrong option, before pytest starts."""
    try:
        import pytest
    except ImportError as error:
        raise ConfigError("the conformance suite needs pytest: install it with pip") from error
    options = read_options(args.backend, args.level, args.waivers, args.report, args.seed, args.dtype)
    words = [f"--backend={options.backend}", f"--level={options.level.label}", f"--seed={options.seed}"]
    words += [f"--report={path}" for path in options.reports]
    words += [f"--waivers={options.waivers}"] if options.waivers else []
    words += [f"--dtype={options.dtype}"] if options.dtype else []
    words += ["-k", args.keyword] if args.keyword else []
    words += ["-x"] if args.stop else []
    own = ["-c", str(PACKAGE / "conformance.ini"), "--rootdir", str(PACKAGE), "--noconftest"]
    plugin = ["-p", "deepinfer_conformance.plugin", "--pyargs", "deepinfer_conformance"]
    code = int(pytest.main([*own, *plugin, *words]))
    return _USAGE if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED) else code
