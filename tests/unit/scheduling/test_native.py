"""The C++ tests, built with address and undefined-behaviour sanitizers and run as a program of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "deepinfer_core" / "csrc"


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_cpp_tests_pass_under_sanitizers(tmp_path: Path) -> None:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    cmake = shutil.which("cmake", path=places)
    assert cmake is not None, "cmake builds the C++ part: install the test requirements"
    run(cmake, "-S", SOURCES, "-B", tmp_path, "-DDEEPINFER_SANITIZE=ON")
    run(cmake, "--build", tmp_path, "--parallel", "2")
    report = run(tmp_path / "deepinfer_native_tests")
    assert report.endswith(" 0 failed\n")
    assert not report.startswith("0 tests")
