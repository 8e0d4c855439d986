"""An environment as a user has it: our distributions installed from wheels, nothing of the source tree on the path.

Third-party packages are those of the interpreter that runs the tests, reached through links; nothing is downloaded. The
compiled modules inside the wheels are the ones that the tests run on: compiling them again would take minutes.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from scikit_build_core.build import build_wheel

ROOT = Path(__file__).parents[3]
OURS = ("deepinfer", "_deepinfer", "_editable_skbc_deepinfer")  # names of our distributions' files in site-packages
COMPILED = {".": "deepinfer_core._native", "backends/cpu": "deepinfer_cpu._kernels"}
PURE = ("tests/conformance", "plugins/demo_model")


@dataclass(frozen=True, slots=True)
class WheelEnvironment:
    """`bin` holds python, deepinfer and pytest; `variables` is the whole environment of a command."""

    bin: Path
    variables: dict[str, str]

    def run(self, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a shell command in a folder; both streams are in `stdout`, as a reader would see them."""
        return subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=self.variables,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )


def build_wheels(folder: Path) -> Path:
    """A folder with a wheel of each of our distributions."""
    wheels = folder / "wheels"
    for source in COMPILED:
        _wheel_of_compiled(source, wheels, folder / "staging" / Path(source).name)
    for source in PURE:
        _build(ROOT / source, wheels, {"build-dir": str(folder / "build" / Path(source).name)})
    return wheels


def make_environment(folder: Path, wheels: Path) -> WheelEnvironment:
    """Make a virtual environment in `folder` and give its pip these wheels to install from, and nothing else."""
    env = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env)], check=True)
    _link_third_party(folder / "third_party", env)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("DEEPINFER_", "PYTHON"))}
    variables |= {
        "PATH": f"{env / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "OMP_NUM_THREADS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it as a value of --build-isolation
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return WheelEnvironment(env / "bin", variables)


def _wheel_of_compiled(source: str, wheels: Path, staging: Path) -> None:
    """A wheel of a package whose compiled module is put in place instead of being compiled."""
    module = importlib.util.find_spec(COMPILED[source])
    assert module is not None
    assert module.origin is not None
    package = COMPILED[source].split(".")[0]
    staging.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / source / name).exists():
            shutil.copy(ROOT / source / name, staging)
    shutil.copytree(
        ROOT / source / package, staging / package, ignore=shutil.ignore_patterns("csrc", "*.so", "__pycache__")
    )
    shutil.copy(module.origin, staging / package)
    _build(staging, wheels, {"wheel.cmake": "false", "cmake.version": ">=3.20"})


def _build(source: Path, wheels: Path, settings: dict[str, str | list[str]]) -> None:
    with chdir(source):
        build_wheel(str(wheels), settings)


def _link_third_party(folder: Path, env: Path) -> None:
    """Everything in the running interpreter's site-packages but our own, on the path of the new environment."""
    folder.mkdir()
    for site in (path for path in map(Path, sys.path) if path.name in ("site-packages", "dist-packages")):
        for entry in site.iterdir():
            if entry.suffix != ".pth" and not entry.name.startswith(OURS) and not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
    (site_packages,) = env.glob("lib/python*/site-packages")
    (site_packages / "third_party.pth").write_text(f"{folder}\n")
