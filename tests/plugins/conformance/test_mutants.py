"""The suite catches what it is there for: each mutant fails the test that is named with it, and by what it asserts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from typing import Any

import pytest

from deepinfer_conformance.inventory import present
from deepinfer_conformance.mutants import MUTANTS, UNBROKEN

BROKEN = [name for name in MUTANTS if name != UNBROKEN]
BY_ASSERTION = {"AssertionError", "Failed"}  # an assert statement, or pytest.raises that saw nothing raised


@pytest.fixture(scope="module")
def trials() -> dict[str, list[dict[str, Any]]]:
    """What became of each mutant's tests; all of them in one program of their own."""
    words = [sys.executable, "-m", "deepinfer_conformance.mutants.hunt"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = defaultdict(list)
    for line in done.stdout.splitlines():
        trial = json.loads(line)
        found[trial["mutant"]].append(trial)
    return found


@pytest.mark.parametrize("name", BROKEN)
def test_a_mutant_is_killed_by_the_test_that_is_named_with_it(trials: dict[str, Any], name: str) -> None:
    (trial,) = trials[name]
    assert trial["test"] == MUTANTS[name].killed_by
    assert not trial["passed"]
    assert trial["phase"] == "call", trial
    expected = BY_ASSERTION if MUTANTS[name].raises == "AssertionError" else {MUTANTS[name].raises}
    assert expected & set(trial["raised"]), trial


def test_the_unbroken_backend_passes_every_killing_test(trials: dict[str, Any]) -> None:
    assert {trial["test"] for trial in trials[UNBROKEN]} == {MUTANTS[name].killed_by for name in BROKEN}
    assert [trial for trial in trials[UNBROKEN] if not trial["passed"]] == []


def test_there_are_mutants_for_every_area_that_can_be_deceived() -> None:
    areas = {str(MUTANTS[name].killed_by).split("::")[0] for name in BROKEN}
    graded = set(present()) - {"test_performance.py"}
    assert len(BROKEN) >= 15
    assert graded - areas <= {"test_engine.py"}  # whose faults are those of its parts


def test_mutants_are_known_by_their_names() -> None:
    for name, mutant in MUTANTS.items():
        assert mutant.make().name == f"mutant:{name}"
