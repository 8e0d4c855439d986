"""What became of each test: pass, fail, waived or not claimed. Turns pytest's reports into these and keeps them.

The outcome, the test's id and its capabilities are user properties of a report, so that they reach who gathers them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from deepinfer_conformance.collection import capabilities_of, test_id
from deepinfer_conformance.records import Noted, read_notes
from deepinfer_conformance.waivers import Waiver

Outcome = Literal["pass", "fail", "waived", "not claimed"]
RANK: tuple[Outcome, ...] = ("pass", "not claimed", "waived", "fail")  # of several phases the last of these counts

_ID, _CAPABILITIES, _OUTCOME, _WAIVER = "test", "capabilities", "outcome", "waiver"


class NotClaimed(Exception):
    """Raised instead of running a test whose capability the backend does not claim."""


@dataclass(slots=True)
class Record:
    """One test of the run."""

    test: str
    capabilities: tuple[str, ...]
    outcome: Outcome = "pass"
    message: str = ""  # of the failure
    waiver: str = ""  # the pattern that waived it
    seconds: float = 0.0
    finished: bool = False  # it came to its end, whichever that was
    notes: list[Noted] = field(default_factory=list)

    @property
    def area(self) -> str:
        """`ops` of `test_ops.py::...`"""
        return self.test.split(".py::")[0].removeprefix("test_")


def label(item: pytest.Item) -> None:
    """Give a test the properties by which its reports are known."""
    item.user_properties += [(_ID, test_id(item)), (_CAPABILITIES, list(capabilities_of(item)))]


def judge(report: pytest.TestReport, error: BaseException | None, waiver: Waiver | None) -> None:
    """Set a report's outcome by the rules: no skips, a waiver is for its exception only, a passing one is a fault."""
    if isinstance(error, NotClaimed):
        _set_aside(report, "not claimed", str(error))
    elif report.skipped or hasattr(report, "wasxfail"):
        reason = getattr(report, "wasxfail", "")
        _fail(report, f"a standard test may not be skipped or expected to fail: {reason or _text(report)}")
    elif waiver is None:
        _settle(report, "fail" if report.failed else "pass")
    elif report.failed and error is not None and waiver.expects(error):
        report.user_properties.append((_WAIVER, waiver.tests))
        _set_aside(report, "waived", f"waived: {waiver.reason} ({waiver.link})")
    elif report.failed:
        report.sections.append(("waiver", f"waived for {waiver.raises} and failed with {type(error).__name__}"))
        _settle(report, "fail")
    elif report.when == "call":
        report.user_properties.append((_WAIVER, waiver.tests))
        _fail(report, f"passes and is waived ({waiver.tests}: {waiver.reason}): remove the waiver")
    else:
        _settle(report, "pass")


def outcome_of(report: pytest.TestReport) -> Outcome | None:
    """What `judge` set; None for a test that is not of the suite."""
    found = dict(report.user_properties).get(_OUTCOME)
    return found if found in RANK else None


class Results:
    """The records of a run, by test."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.broken: list[str] = []  # one text for each file that could not be collected

    def add(self, report: pytest.TestReport) -> None:
        """Take in one phase of one test."""
        properties: dict[str, Any] = dict(report.user_properties)
        outcome = outcome_of(report)
        if outcome is None:
            return
        test = str(properties[_ID])
        record = self.records.setdefault(test, Record(test, tuple(properties[_CAPABILITIES])))
        record.seconds += report.duration
        record.finished |= report.when == "teardown" or report.failed
        record.waiver = str(properties.get(_WAIVER, record.waiver))
        if report.when == "call":
            record.notes = list(read_notes(report.user_properties))
        if RANK.index(outcome) > RANK.index(record.outcome):
            record.outcome = outcome
        if outcome == "fail":
            record.message = record.message or _text(report)

    def finished(self) -> list[Record]:
        """The records of tests that were not cut off, in the order in which they ran."""
        return [record for record in self.records.values() if record.finished]

    def of(self, outcome: Outcome) -> Iterator[Record]:
        """The records with this outcome, in the order in which they ran."""
        return (record for record in self.records.values() if record.outcome == outcome)


def _settle(report: pytest.TestReport, outcome: Outcome) -> None:
    report.user_properties.append((_OUTCOME, outcome))


def _fail(report: pytest.TestReport, text: str) -> None:
    report.outcome, report.longrepr = "failed", text
    report.__dict__.pop("wasxfail", None)
    _settle(report, "fail")


def _set_aside(report: pytest.TestReport, outcome: Outcome, text: str) -> None:
    """pytest has no outcome of its own for this; `skipped` is what keeps it from going on with the test."""
    path, line, _ = report.location
    report.outcome, report.longrepr = "skipped", (path, line or 0, text)
    _settle(report, outcome)


def _text(report: pytest.TestReport) -> str:
    """The last line that says what went wrong."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(report.longrepr if crash is None else crash.message)
