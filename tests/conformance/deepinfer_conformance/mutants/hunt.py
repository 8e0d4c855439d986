"""Shows that the suite catches its mutants: each against the test that must fail on it, the unbroken one against all.

`python -m deepinfer_conformance.mutants.hunt [NAME ...]` prints a line of JSON for each test of each mutant.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO

import pytest
import torch

from deepinfer_conformance.inventory import AREAS, PACKAGE
from deepinfer_conformance.mutants import MUTANTS, UNBROKEN
from deepinfer_conformance.subject import MUTANT


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one test on one mutant."""

    mutant: str
    test: str
    passed: bool
    phase: str  # "setup", "call" or "teardown": where it failed, else "call"
    raised: tuple[str, ...]  # the class of what it failed with, and those that it derives from
    message: str


class _Watcher:
    """Notes the outcome of each test of one run."""

    def __init__(self, mutant: str) -> None:
        self._mutant = mutant
        self.trials: dict[str, Trial] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        test = f"{item.path.name}::{item.name}"
        if call.excinfo is not None:
            raised = tuple(one.__name__ for one in call.excinfo.type.__mro__)
            self.trials[test] = Trial(self._mutant, test, False, call.when, raised, call.excinfo.exconly()[:500])
        elif call.when == "call":
            self.trials[test] = Trial(self._mutant, test, True, call.when, (), "")


def hunt(name: str) -> list[Trial]:
    """Run a mutant against its killing test, or the unbroken backend against all of these."""
    mutant = MUTANTS[name]
    tests = [mutant.killed_by] if mutant.killed_by else [one.killed_by for one in MUTANTS.values() if one.killed_by]
    watcher = _Watcher(name)
    own = ["-c", str(PACKAGE / "conformance.ini"), "--rootdir", str(PACKAGE), "--noconftest", "-p", "no:cacheprovider"]
    words = [f"--backend={MUTANT}{name}", "--level=full", *(str(AREAS / test) for test in tests)]
    default = torch.get_default_dtype()
    with redirect_stdout(StringIO()) as said:
        code = pytest.main([*own, "-p", "deepinfer_conformance.plugin", *words], plugins=[watcher])
    torch.set_default_dtype(default)  # which one of the mutants changes
    missing = set(tests) - watcher.trials.keys()
    assert not missing, (
        f"{name}: {', '.join(sorted(missing))} did not run (exit code {code}): {said.getvalue()[-2000:]}"
    )
    return list(watcher.trials.values())


def report(names: Sequence[str]) -> Iterator[str]:
    """Trials as lines of JSON."""
    for name in names or [UNBROKEN, *(one for one in MUTANTS if one != UNBROKEN)]:
        for trial in hunt(name):
            yield json.dumps(asdict(trial))


if __name__ == "__main__":
    for line in report(sys.argv[1:]):
        print(line, flush=True)
