"""build.sh refuses before it installs: in a copy of the files it reads, with toolkits that these tests make up."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = [
    "build.sh",
    "pyproject.toml",
    "constraints.txt",
    "requirements-build.txt",
    "requirements-test.txt",
    "tools",
    "backends/cpu/pyproject.toml",
    "deepinfer_core/__init__.py",
    "deepinfer_core/api",
]


@pytest.fixture
def tree(tmp_path):
    """A release with the core and the cpu backend, as far as build.sh looks before it installs."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in NEEDED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, tree / name)
    return tree


@pytest.fixture
def build(tree):
    """Runs build.sh; returns (exit code, its error message). Fails if anything in the tree changed."""

    def build(*arguments, **variables):
        before = listing(tree)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEPINFER_")}
        command = ["bash", str(tree / "build.sh"), *arguments]
        done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, timeout=120)
        assert listing(tree) == before
        return done.returncode, done.stderr.strip()

    return build


def listing(folder):
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def cuda(folder, version):
    program(folder / "bin" / "nvcc", f"echo 'Cuda compilation tools, release {version}, V{version}.1'")
    return str(folder)


def cann(folder, version):
    program(folder / "bin" / "bisheng", "true")
    (folder / "compiler").mkdir()
    (folder / "compiler" / "version.info").write_text(f"Name=compiler\nVersion={version}\n")
    return str(folder)


def test_cuda_without_a_toolkit_says_what_was_looked_for_where_and_which_version(build, tmp_path):
    code, message = build(DEEPINFER_ACCEL="cuda", CUDA_HOME=str(tmp_path / "absent"))
    assert code == 2
    assert message == (
        "build.sh: error: DEEPINFER_ACCEL=cuda needs the CUDA toolkit, version 12.4 or newer: nvcc was looked for in "
        f"{tmp_path}/absent/bin (CUDA_HOME) and not found. Install it, or say where it is, and run build.sh again; "
        "DEEPINFER_ACCEL=cpu builds without it. Note that this release has no cuda backend in any case: it has cpu. "
        "Nothing was installed."
    )


def test_ascend_without_a_toolkit_says_the_same_of_cann(build, tmp_path):
    code, message = build(DEEPINFER_ACCEL="ascend", ASCEND_HOME_PATH=str(tmp_path / "absent"))
    assert code == 2
    assert "CANN, version 9.1 or newer: the compiler bisheng was looked for in" in message
    assert message.count("\n") == 0


@pytest.mark.parametrize("version", ["11.8", "12.3", "9.2"])
def test_a_toolkit_that_is_too_old_is_named_with_its_version(build, tmp_path, version):
    code, message = build(DEEPINFER_ACCEL="cuda", CUDA_HOME=cuda(tmp_path / "cuda", version))
    assert code == 2
    assert f"{tmp_path}/cuda/bin/nvcc is of version {version}" in message


def test_an_old_cann_is_named_with_its_version(build, tmp_path):
    code, message = build(DEEPINFER_ACCEL="ascend", ASCEND_HOME_PATH=cann(tmp_path / "cann", "8.5.0"))
    assert code == 2
    assert "says version '8.5.0'" in message


def test_a_compiler_that_does_not_tell_its_version_is_not_trusted(build, tmp_path):
    program(tmp_path / "cuda" / "bin" / "nvcc", "exit 1")
    code, message = build(DEEPINFER_ACCEL="cuda", CUDA_HOME=str(tmp_path / "cuda"))
    assert code == 2
    assert "does not tell its version" in message


@pytest.mark.parametrize("version", ["12.4", "12.10", "13.0"])
def test_with_a_toolkit_and_no_backend_the_release_says_so(build, tmp_path, version):
    code, message = build(DEEPINFER_ACCEL="cuda", CUDA_HOME=cuda(tmp_path / "cuda", version))
    assert code == 2
    assert f"CUDA {version} ({tmp_path}/cuda/bin/nvcc) was found, but this release has no cuda backend" in message


def test_cann_and_no_backend_likewise(build, tmp_path):
    code, message = build(DEEPINFER_ACCEL="ascend", ASCEND_HOME_PATH=cann(tmp_path / "cann", "9.2.0"))
    assert code == 2
    assert "CANN 9.2.0" in message
    assert "has no ascend backend: it has cpu" in message


def test_an_unknown_accelerator_lists_the_known(build):
    code, message = build(DEEPINFER_ACCEL="rocm")
    assert code == 2
    assert "DEEPINFER_ACCEL = 'rocm' is not allowed: choose cpu, cuda or ascend" in message


def test_a_compiler_without_cpp20_is_refused(build, tmp_path):
    old = program(tmp_path / "old-c++", 'test "$1" = --version && echo old 1.0; exit 1')
    code, message = build(DEEPINFER_ACCEL="cpu", CXX=str(old))
    assert code == 2
    assert f"{old} cannot compile C++20" in message


@pytest.mark.parametrize("variables", [{}, {"DEEPINFER_NO_VENV": "1"}])
def test_an_old_python_is_refused_with_its_version(build, tmp_path, variables):
    old = program(tmp_path / "old-python", 'test "$1" = --version && echo Python 3.9.1; exit 1')
    code, message = build(DEEPINFER_ACCEL="cpu", PYTHON=str(old), **variables)
    assert code == 2
    assert f"{old} is Python 3.9.1" in message


def test_without_a_venv_every_missing_package_is_in_one_message(build, tmp_path):
    """The interpreter here is this one without its packages."""
    bare = program(tmp_path / "bare-python", f'exec "{sys.executable}" -S "$@"')
    code, message = build(DEEPINFER_ACCEL="cpu", PYTHON=str(bare), DEEPINFER_NO_VENV="1")
    *warnings, error = message.splitlines()
    assert code == 2
    assert warnings == ["build.sh: warning: deepseek-recipe==0.2.0 is not installed: chat is off"]
    for name in ("torch>=2.11", "safetensors>=0.5", "pybind11", "scikit-build-core"):
        assert f"{name} is not installed" in error


@pytest.mark.parametrize("arguments", [["install"], ["build", "fast"], ["demo", "now"]])
def test_what_it_does_not_know_is_refused(build, arguments):
    code, message = build(*arguments)
    assert code == 2
    assert arguments[-1] in message


def test_help_names_every_goal_and_variable(build, tree):
    done = subprocess.run(["bash", str(tree / "build.sh"), "--help"], capture_output=True, text=True, check=True)
    for word in ("demo", "test", "clean", "DEEPINFER_ACCEL", "DEEPINFER_NO_VENV"):
        assert word in done.stdout
