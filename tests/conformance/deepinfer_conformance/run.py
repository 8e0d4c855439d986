"""One run of the suite: the pytest hooks that hold its state, from opening the backend to the verdict."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from deepinfer_conformance import inventory
from deepinfer_conformance.card import Card, make_card
from deepinfer_conformance.card_files import write_report
from deepinfer_conformance.card_terminal import render_terminal
from deepinfer_conformance.claims import unclaimed
from deepinfer_conformance.collection import Collection, capabilities_of, is_standard, test_id
from deepinfer_conformance.options import Options
from deepinfer_conformance.outcomes import NotClaimed, Results, judge, label, outcome_of
from deepinfer_conformance.subject import Subject, Unavailable, open_subject
from deepinfer_conformance.waivers import Waiver, find_waiver
from deepinfer_core.api.errors import ConfigError

USAGE, UNAVAILABLE = 2, 3
_LETTERS = {"waived": "w", "not claimed": "n"}


class Run:
    """The state of one run. `subject` is open from the session's start to its end."""

    def __init__(self, options: Options, waivers: tuple[Waiver, ...]) -> None:
        self.options = options
        self.waivers = waivers
        self.results = Results()
        self.collection = Collection()
        self.card: Card | None = None
        self._subject: Subject | None = None
        self._deselected: set[str] = set()
        self._refused = False

    @property
    def subject(self) -> Subject:
        assert self._subject is not None, "the backend is open while tests run"
        return self._subject

    # --- before the tests ----------------------------------------------------------------------------------------

    def pytest_sessionstart(self) -> None:
        try:
            self._subject = open_subject(self.options.backend)
        except Unavailable as error:
            self._refuse(error, UNAVAILABLE)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Of the package, only the areas hold tests."""
        inside = inventory.PACKAGE in collection_path.parents
        areas = collection_path == inventory.AREAS or inventory.AREAS in collection_path.parents
        return True if inside and not areas else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        try:
            left_out = self.collection.choose(items, self.options)
        except ConfigError as error:
            self._refuse(error, USAGE)
        config.hook.pytest_deselected(items=left_out)
        for item in filter(is_standard, items):
            label(item)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._deselected |= {test_id(item) for item in items if is_standard(item)}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed or report.skipped:
            self.results.broken.append(f"{report.nodeid}: {report.longreprtext}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.results.broken:
            return  # a failure of the run by itself
        try:
            self.collection.check(session.items, self._deselected, session.config.args)
        except ConfigError as error:
            self._refuse(error, USAGE)

    # --- each test -----------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        lacking = unclaimed(capabilities_of(item), self.subject.capabilities) if is_standard(item) else ()
        if lacking:
            raise NotClaimed(f"the backend does not claim {', '.join(lacking)}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if is_standard(item):
            error = None if call.excinfo is None else call.excinfo.value
            judge(report, error, find_waiver(self.waivers, test_id(item)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.results.add(report)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        outcome = outcome_of(report) if isinstance(report, pytest.TestReport) else None
        return (outcome, _LETTERS[outcome], outcome.upper()) if outcome in _LETTERS else None

    # --- after them ----------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._subject is None or self._refused or session.config.option.collectonly:
            return
        broke_off = exitstatus in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.INTERRUPTED)
        self.card = make_card(self.options, self._subject, self.results, self.collection, self.waivers, broke_off)
        for path in self.options.reports:
            write_report(self.card, path)
        session.exitstatus = self.card.exit_code

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.card is not None:
            terminalreporter.section(f"conformance of {self.card.backend}")
            terminalreporter.line(render_terminal(self.card))

    def pytest_unconfigure(self) -> None:
        if self._subject is not None:
            self._subject.close()

    def _refuse(self, error: Exception, code: int) -> NoReturn:
        self._refused = True
        pytest.exit(str(error), returncode=code)


RUN = pytest.StashKey[Run]()  # where a pytest configuration keeps its run
