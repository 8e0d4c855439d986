"""Progress in lines and as a bar."""

import io
import logging

import pytest

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.observe import log
from deepinfer_core.observe.progress import LINE_SECONDS, BarProgress, LineProgress, NoProgress, duration, make_progress


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar_and_a_log_gets_lines():
    assert isinstance(make_progress(Terminal()), BarProgress)
    assert isinstance(make_progress(io.StringIO()), LineProgress)


def test_lines_come_now_and_then_and_at_both_ends():
    clock, shown = Clock(), io.StringIO()
    with LineProgress(shown, clock) as progress:
        progress.start(4, 1)
        progress.ready()
        clock.now += LINE_SECONDS - 1
        progress.advance(10)
        clock.now += 1
        progress.advance(30)
    assert shown.getvalue().splitlines() == [
        "1/4 requests",
        "3/4 requests, 4 tok/s, 0:10 gone, 0:05 left",
        "3/4 requests, 4 tok/s, 0:10 gone, 0:05 left",
    ]


def test_time_before_the_model_is_ready_does_not_count():
    clock, shown = Clock(), io.StringIO()
    with LineProgress(shown, clock) as progress:
        progress.start(1, 0)
        clock.now += 1000
        progress.ready()
        clock.now += LINE_SECONDS
        progress.advance(20)
    assert shown.getvalue().splitlines()[-1] == "1/1 requests, 2 tok/s, 0:10 gone, 0:00 left"


def test_lines_hold_no_carriage_return():
    shown = io.StringIO()
    with LineProgress(shown) as progress:
        progress.start(1, 0)
        progress.advance(1)
    assert "\r" not in shown.getvalue()


def test_the_bar_counts_requests_and_tokens():
    shown = Terminal()
    with BarProgress(shown) as progress:
        progress.start(3, 1)
        progress.ready()
        progress.advance(5)
        progress.advance(5)
    assert "3/3" in shown.getvalue()
    assert "tok/s" in shown.getvalue()


@pytest.mark.parametrize("progress", [NoProgress(), BarProgress(Terminal())])
def test_progress_that_never_started_ends(progress):
    with progress:
        pass


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (75.2, "1:15"), (59.6, "1:00"), (3661, "1:01:01"), (360000, "100:00:00")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.fixture
def root_logger():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_ours_are_logged_from_the_level_up_and_others_from_warning_up(capsys, root_logger):
    log.set_up("info")
    for name in ("deepinfer_core.x", "deepinfer_cpu", "urllib3"):
        logging.getLogger(name).debug("quiet")
        logging.getLogger(name).info("said")
        logging.getLogger(name).warning("warned")
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "said" in line] == ["INFO deepinfer_core.x: said", "INFO deepinfer_cpu: said"]
    assert sum("warned" in line for line in lines) == 3
    assert not any("quiet" in line for line in lines)


def test_an_unknown_level(root_logger):
    with pytest.raises(ConfigError, match="'loud' is not allowed: choose one of debug, info, warning, error"):
        log.set_up("loud")
