"""What build.sh asks of Python: which requirements are missing, which packages are out of date, and the build record.

Run by the interpreter that is being installed into. Uses nothing but the standard library, so that it runs first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from deepinfer_core.api.config import build_record  # noqa: E402  # imports the standard library alone

OPTIONAL = {  # package -> what is off without it
    "deepseek-recipe": "chat is off",
    "clang-format": "the C++ format is not checked",
    "matplotlib": "timelines are not drawn, and their tests are skipped",
    "mypy": "types are not checked",
    "prometheus-client": "metrics are off, and their tests are skipped",
    "pytest-xdist": "tests run one after the other",
    "ruff": "style is not checked",
}
TOOLS = {"cmake", "ninja"}  # a program of that name serves as well as the package


def main() -> int:
    """Run one of the subcommands below."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.__doc__)
        sub.add_argument("arguments", nargs="*")
        sub.set_defaults(command=command)
    options = parser.parse_args()
    return options.command(options.arguments)


def dependencies(folders: list[str]) -> int:
    """Print what the packages in these folders need at run time, one requirement a line."""
    print("\n".join(sorted(set(_dependencies(folders)))))
    return 0


def missing(arguments: list[str]) -> int:
    """Print what this interpreter lacks: arguments are package folders and requirement files. 1 when it is needed."""
    wanted = set(_dependencies([name for name in arguments if not name.endswith(".txt")]))
    for name in arguments:
        if name.endswith(".txt"):  # the pins are for downloads; an image brings its own versions
            lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
            wanted |= {line.split("==")[0] for line in lines if line and not line.startswith("#")}
    faults = {_name(one): fault for one in sorted(wanted) if (fault := _fault(one))}
    needed = [fault for name, fault in faults.items() if name not in OPTIONAL]
    for name, fault in faults.items():
        if name in OPTIONAL:
            print(f"build.sh: warning: {fault}: {OPTIONAL[name]}", file=sys.stderr)
    print(", ".join(needed))
    return 1 if needed else 0


def stale(folders: list[str]) -> int:
    """Print the folders whose package is not installed from them as they are now, one a line."""
    for folder in folders:
        stamp = _stamp_file(folder)
        if not (_installed_here(folder) and stamp.exists() and stamp.read_text() == _fingerprint(folder)):
            print(folder)
    return 0


def stamp(folders: list[str]) -> int:
    """Note that the packages in these folders are installed as they are now."""
    for folder in folders:
        _write(_stamp_file(folder), _fingerprint(folder))
    return 0


def record(arguments: list[str]) -> int:
    """Write the build record for a backend."""
    (backend,) = arguments
    content = {
        "backend": backend,
        "version": version("deepinfer-core"),
        "python": sys.version.split()[0],
        "torch": version("torch"),
        "source": str(ROOT),
    }
    if not _write(build_record(), json.dumps(content, indent=2) + "\n"):
        print(f"build.sh: note: {build_record()} cannot be written: the backend will be chosen at run time")
    return 0


def _dependencies(folders: list[str]) -> Iterator[str]:
    for folder in folders:
        project = _project(folder)
        yield from (one for one in project.get("dependencies", []) if not one.startswith("deepinfer-"))


def _project(folder: str) -> dict:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _fault(requirement: str) -> str | None:
    """Why the interpreter does not meet `name>=version`; None when it does."""
    name = _name(requirement)
    try:
        found = version(name)
    except PackageNotFoundError:
        return None if name in TOOLS and shutil.which(name) else f"{requirement} is not installed"
    floor = re.search(r">=\s*([\d.]+)", requirement)
    if floor and _numbers(found) < _numbers(floor[1]):
        return f"{requirement} is wanted and {found} is installed"
    return None


def _numbers(text: str) -> list[int]:
    """2.11.0+cu130 -> [2, 11, 0]"""
    return [int(part) for part in re.match(r"[\d.]*", text)[0].split(".") if part]


def _fingerprint(folder: str) -> str:
    """A hash of all that a change of calls for a new install: packaging, C++ sources, and the interpreter."""
    digest = hashlib.sha256(sys.version.encode())
    base = ROOT / folder
    for path in [base / "pyproject.toml", *sorted(base.glob("csrc/**/*")), *sorted(base.glob("*/csrc/**/*"))]:
        if path.is_file() and "build" not in path.relative_to(base).parts:
            digest.update(str(path.relative_to(base)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _installed_here(folder: str) -> bool:
    here = (ROOT / folder).resolve().as_uri()
    origins = [one.read_text("direct_url.json") for one in distributions(name=_project(folder)["name"])]
    return any(origin is not None and json.loads(origin)["url"] == here for origin in origins)


def _stamp_file(folder: str) -> Path:
    return build_record().parent / "stamps" / _project(folder)["name"]


def _write(path: Path, text: str) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError:
        return False
    return True


COMMANDS = {function.__name__: function for function in (dependencies, missing, stale, stamp, record)}

if __name__ == "__main__":
    sys.exit(main())
