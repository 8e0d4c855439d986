"""The report card: what it holds, and that each of its three forms shows it."""

import json
from pathlib import Path

import pytest

TEXT = """
@pytest.mark.capability("weights.fp8")
def test_errors(note):
    note("error", "linear", 1.25)
    note("error", "linear", 0.5)
    note("error", "rms_norm", 0.75)

@pytest.mark.parametrize("level", [3, 2])
def test_determinism(note, level):
    note("determinism", "measured", level)

def test_timing(note):
    note("timing", "round trip, us", 12.5)
    note("left_out", "experts", "one\\ntwo")

@pytest.mark.capability("graph_capture")
def test_graphs():
    pass

def test_wrong():
    assert 1 == 2, "one | is not two"

def test_known():
    raise LookupError("a missing key")
"""

WAIVER = """
[[waiver]]
tests = "test_made.py::test_known"
reason = "keys are lost"
link = "https://example.org/7"
kind = "never"
raises = "LookupError"
"""


@pytest.fixture
def ran(suite):
    return suite(TEXT, waivers=WAIVER)


def test_a_card_holds_what_was_noted(ran):
    card = ran.card
    assert card["errors"] == {"linear": 1.25, "rms_norm": 0.75}
    assert (card["determinism"], card["measured_determinism"]) == (2, 2)
    assert card["timings"] == {"round trip, us": 12.5}
    assert card["left_out"] == {"experts": 2}
    assert ran.counts() == (4, 1, 1, 1)


def test_a_card_says_what_was_tested_with_what(ran):
    card = ran.card
    assert (card["backend"], card["interface"], card["core_interface"]) == ("cpu", 1, 1)
    assert card["distribution"].startswith("deepinfer-backend-cpu ")
    assert {"torch", "deepinfer-core"} <= card["versions"].keys()
    assert (card["suite"], card["level"], card["seed"], card["dtype"]) == ("0.1.0", "core", 0, None)
    assert card["fallbacks"] == []
    assert (card["exit_code"], ran.code) == (1, 1)


FACTS = (
    "cpu (deepinfer-backend-cpu",
    "interface 1",
    "declared D2, measured D2",
    "graph_capture",
    "test_made.py::test_wrong",
    "one | is not two",
    "test_made.py::test_known",
    "keys are lost",
    "https://example.org/7",
    "linear",
    "1.25",
    "round trip, us",
    "DOES NOT CONFORM: 1 failure",
)


@pytest.mark.parametrize("fact", FACTS)
def test_the_terminal_and_the_page_show_every_fact(ran, fact):
    assert fact in ran.text
    assert fact in Path("card.md").read_text()


def test_the_page_has_tables_of_one_width(ran):
    lines = Path("card.md").read_text().splitlines()
    tables = [[line for line in part.split("\n") if line.startswith("|")] for part in "\n".join(lines).split("\n\n")]
    for table in filter(None, tables):
        assert len({line.replace("\\|", "").count("|") for line in table}) == 1, table


def test_a_report_is_written_where_it_was_asked_for(suite):
    suite("def test_a():\n    pass\n", "--report=other.json")
    assert json.loads(Path("other.json").read_text())["verdict"] == "CONFORMS (core, interface 1)"


def test_a_note_of_an_unknown_kind_fails_the_test(suite):
    ran = suite("def test_a(note):\n    note('eror', 'linear', 1)\n")
    assert (ran.code, ran.counts()) == (1, (0, 1, 0, 0))


def test_determinism_that_no_test_measured_is_not_measured(suite):
    ran = suite("def test_a():\n    pass\n")
    assert ran.card["measured_determinism"] is None
    assert "not measured" in ran.text
