"""The tests of the C++ scheduler and prefix cache bite: with each mutant of native_mutants.py on, its test fails. All
mutants are built into one module; a number in the environment says which of them is on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pybind11
import pytest
from native_mutants import MUTANTS, NUMBERS, WEAKNESSES, Mutant

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "deepinfer_core" / "csrc"
CHOICE = "NATIVE_MUTANT"
SWITCH = f"""
#include <cstdlib>
inline int mutant() {{
    static const int chosen = std::atoi(std::getenv("{CHOICE}"));
    return chosen;
}}
"""
OPTIONS = ["-O0", "-std=c++20", "-fPIC", "-w", f"-I{pybind11.get_include()}", f"-I{sysconfig.get_path('include')}"]

Verdict = subprocess.CompletedProcess[str]


def is_on(one: Mutant) -> str:
    """The condition under which a mutant is on: chosen itself, or needed by the chosen one."""
    chosen = [one.name, *(other.name for other in MUTANTS if other.weak == one.name)]
    return "(" + " || ".join(f"mutant() == {NUMBERS[name]}" for name in chosen) + ")"


def mutated(folder: Path) -> Path:
    """The sources with every mutant in them."""
    shutil.copytree(SOURCES, folder)
    types = folder / "types.hpp"
    types.write_text(types.read_text().replace("#pragma once\n", "#pragma once\n" + SWITCH, 1))
    for one in [*WEAKNESSES, *MUTANTS]:
        file = folder / one.file
        text = file.read_text()
        assert text.count(one.right) == 1, f"{one.name}: {one.file} does not have {one.right!r} once"
        file.write_text(text.replace(one.right, one.wrong.replace("ON", is_on(one))))
    return folder


def build(sources: Path) -> Path:
    """One module of all sources, compiled in two halves at a time."""
    compiler = os.environ.get("CXX", "c++")
    halves = [sources / "bindings.cpp", sources / "core.cpp"]
    files = sorted(file.name for file in sources.glob("*.cpp") if file != halves[0])
    halves[1].write_text("".join(f'#include "{name}"\n' for name in files))
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(run, compiler, *OPTIONS, "-c", half, "-o", half.with_suffix(".o")) for half in halves]
    for job in jobs:
        assert job.result().returncode == 0, job.result().stderr
    module = sources / "_native.so"
    linked = run(compiler, "-shared", *(half.with_suffix(".o") for half in halves), "-o", module)
    assert linked.returncode == 0, linked.stderr
    return module


def run(*command: str | Path, **environment: str) -> Verdict:
    parts, everything = [str(part) for part in command], os.environ | environment
    return subprocess.run(parts, capture_output=True, text=True, check=False, env=everything, timeout=300)


def judge(module: Path, number: int, *tests: str) -> Verdict:
    """Run tests with one mutant on, 0 for none. Nothing but pytest itself is loaded: it is short."""
    where = [f"{HERE}/{test}" for test in tests]
    flags = ["-q", "--noconftest", "-p", "no:cacheprovider", "--tb=short"]
    switches = {CHOICE: str(number), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return run(sys.executable, HERE / "with_native.py", module, *flags, *where, **switches)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """By mutant, what became of its test, and under "none" what became of all of them without any."""
    module = build(mutated(tmp_path_factory.mktemp("native") / "csrc"))
    jobs = {one.name: (NUMBERS[one.name], one.killer) for one in [*WEAKNESSES, *MUTANTS]}
    jobs["none"] = (0, *sorted({one.killer for one in MUTANTS}))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(jobs, pool.map(lambda job: judge(module, *job), jobs.values()), strict=True))


@pytest.mark.parametrize("name", ["none", *(one.name for one in WEAKNESSES)])
def test_without_a_mutant_the_tests_pass(verdicts: dict[str, Verdict], name: str) -> None:
    done = verdicts[name]
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr


@pytest.mark.parametrize("name", [one.name for one in MUTANTS])
def test_a_mutant_fails_its_test(verdicts: dict[str, Verdict], name: str) -> None:
    done = verdicts[name]
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "assert" in done.stdout.lower(), f"no check of ours has failed:\n{done.stdout}"


def test_a_broken_invariant_is_reported_with_the_state(verdicts: dict[str, Verdict]) -> None:
    """What was counted when it failed is what one needs to find out why."""
    report = verdicts["slot_stays_taken"].stdout
    assert "a slot is taken and not held, or held twice; at step" in report
    assert "of 16 blocks" in report
    assert "of 4 slots" in report
