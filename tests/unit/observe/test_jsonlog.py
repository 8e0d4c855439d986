"""Log lines as JSON, whatever is in them."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.observe import log
from deepinfer_core.observe.jsonlog import JsonFormatter
from deepinfer_core.observe.progress import LogProgress, make_progress


def parsed(line: str) -> dict[str, Any]:
    """The object on a line that any reader takes: ASCII, strict numbers, no half of a surrogate pair."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    assert line.isascii()
    assert line.splitlines() == [line]
    found: dict[str, Any] = json.loads(line, parse_constant=refuse)
    json.dumps(found, ensure_ascii=False).encode()
    return found


def formatted(message: object = "m", *args: object, **extra: object) -> dict[str, Any]:
    record = logging.LogRecord("deepinfer_core.x", logging.WARNING, "file", 1, message, args, None)
    vars(record).update(extra)
    return parsed(JsonFormatter().format(record))


def test_a_record_has_time_level_logger_and_message() -> None:
    before = datetime.now(UTC)
    found = formatted("%d of %s", 3, "them")
    assert found.keys() == {"time", "level", "logger", "message"}
    assert (found["level"], found["logger"], found["message"]) == ("warning", "deepinfer_core.x", "3 of them")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["time"])
    assert abs((datetime.fromisoformat(found["time"]) - before).total_seconds()) < 60


def test_fields_of_extra_come_as_they_are() -> None:
    found = formatted(step=3, names=["a", "b"], nested={"k": None, "yes": True})
    assert (found["step"], found["names"], found["nested"]) == (3, ["a", "b"], {"k": None, "yes": True})


def test_a_field_named_like_one_of_ours_hides_neither() -> None:
    found = formatted("m", time="noon", level=9)
    assert (found["message"], found["level"]) == ("m", "warning")
    assert (found["time_"], found["level_"]) == ("noon", 9)


class Unshowable:
    def __str__(self) -> str:
        raise ValueError("never")


def cycle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        (b"\xff", "b'\\xff'"),
        (cycle(), "[[...]]"),
        (Unshowable(), "<Unshowable without text: ValueError>"),
        ([Unshowable()], ["<Unshowable without text: ValueError>"]),
        ("half \ud800 pair", "half \ufffd pair"),
        ({"\udfff": ["\ud83d\ude00"]}, {"\ufffd": ["\U0001f600"]}),
        ("a\nb\u2028c\x00", "a\nb\u2028c\x00"),
        ("\\ud800", "\\ud800"),
        (10**5000, "<int without text: ValueError>"),
    ],
    ids=range(11),
)
def test_odd_values_break_nothing(value: object, shown: object) -> None:
    assert formatted(value=value)["value"] == shown


@pytest.mark.parametrize(
    ("message", "args", "shown"),
    [
        ("half \ud800", (), "half \ufffd"),
        ("%d", ("x",), "%d (arguments left out: TypeError)"),
        ("%s", (Unshowable(),), "%s (arguments left out: ValueError)"),
    ],
)
def test_odd_messages_break_nothing(message: str, args: tuple[object, ...], shown: str) -> None:
    assert formatted(message, *args)["message"] == shown


characters = st.characters() | st.sampled_from('\ud800\udfff\x00\n\u2028\\"%')
texts = st.text(characters)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(message=texts, extra=values, name=texts)
def test_every_record_is_one_json_object(message: str, extra: object, name: str) -> None:
    found = formatted(message, **{f"x{name}": extra})
    assert found["level"] == "warning"
    assert len(found) == 5


def test_an_exception_is_a_field() -> None:
    try:
        raise ValueError("bad \udcff value")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "file", 1, "failed", (), sys.exc_info())
    found = parsed(JsonFormatter().format(record))
    assert (found["message"], found["exception"]["type"]) == ("failed", "ValueError")
    assert found["exception"]["message"] == "bad \ufffd value"
    assert found["exception"]["traceback"].startswith("Traceback")


@pytest.fixture
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


@pytest.mark.usefixtures("root_logger")
def test_the_programs_log_is_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    log.set_up("info", json_lines=True)
    logging.getLogger("deepinfer_core.x").info("started", extra={"steps": 3})
    logging.getLogger("deepinfer_core.x").debug("quiet")
    logging.getLogger("urllib3").info("quiet")
    log.tell("on the cpu", label="deepinfer: ")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    lines = [parsed(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["logger"], line["level"]) for line in lines] == [
        ("deepinfer_core.x", "info"),
        ("deepinfer", "info"),
        ("py.warnings", "warning"),
    ]
    assert lines[0]["steps"] == 3
    assert lines[1]["message"] == "on the cpu"


@pytest.mark.usefixtures("root_logger")
def test_a_plain_program_says_it_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    log.set_up("warning")
    log.tell("on the cpu", label="deepinfer: ", fault=ValueError("v"))
    assert capsys.readouterr().err == "ValueError: v\ndeepinfer: on the cpu\n"


@pytest.mark.usefixtures("root_logger")
def test_progress_is_records_where_the_log_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    log.set_up("error", json_lines=True)
    with make_progress() as progress:
        assert isinstance(progress, LogProgress)
        progress.start(2, 0)
        progress.ready()
        progress.advance(3)
    messages = [parsed(line)["message"] for line in capsys.readouterr().err.splitlines()]
    assert messages[0] == "0/2 requests"
    assert messages[-1].startswith("1/2 requests")
    assert not isinstance(make_progress(io.StringIO()), LogProgress)
