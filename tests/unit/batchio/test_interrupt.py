"""Ctrl-C and a polite kill: the first finishes what is in flight, the second drops it; records stay either way."""

import signal

import pytest
from batch_bench import TOKENIZER, prompts
from fake_llm import FakeLLM

from deepinfer_core.api.interrupt import StopSignals, interrupt_held
from deepinfer_core.batchio.writer import side_path

NUMBERS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
ORDERS = pytest.mark.parametrize("order", ["input", "completion"])


@pytest.fixture(autouse=True)
def _handlers_are_given_back():
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


class PressedLLM(FakeLLM):
    """Before each of these answers the signal comes; `asked` are the requests that it took."""

    def __init__(self, number, *before_answers):
        super().__init__(TOKENIZER, window=4)
        self.asked = []
        self._number = number
        self._before_answers = before_answers
        self._given = 0

    def stream(self, requests):
        def noted():
            for request in requests:
                self.asked.append(f"line-{request.request_id}")
                yield request

        return super().stream(noted())

    def _answer(self, request):
        self._given += 1
        for _ in range(self._before_answers.count(self._given)):
            signal.raise_signal(self._number)
        return super()._answer(request)


def kept(bench):
    files = [path for path in (bench.target, side_path(bench.target)) if path.exists()]
    lines = b"".join(path.read_bytes() for path in files).splitlines()
    return sorted(line.split(b'"')[3].decode() for line in lines)


@NUMBERS
@ORDERS
def test_the_first_finishes_what_is_in_flight(bench, number, order, capfd):
    bench.give(*prompts(20))
    llm = PressedLLM(number, 3)
    with pytest.raises(KeyboardInterrupt):
        bench.run(llm, order=order)
    assert kept(bench) == sorted(llm.asked)
    assert len(llm.asked) == 6  # a window of 4, refilled twice
    assert llm.left == 1
    assert "stopping: the requests in flight are finished first" in capfd.readouterr().err
    assert bench.run(order=order, resume=True).succeeded == 14
    assert sorted(bench.answers()) == sorted(f"r{index}" for index in range(20))


@NUMBERS
@ORDERS
@pytest.mark.parametrize("presses", [(3, 3), (3, 5)], ids=["together", "later"])
def test_the_second_drops_it(bench, number, order, presses):
    bench.give(*prompts(20))
    llm = PressedLLM(number, *presses)
    with pytest.raises(KeyboardInterrupt):
        bench.run(llm, order=order)
    assert len(kept(bench)) == presses[-1] - 1 < len(llm.asked)
    assert llm.left == 1
    bench.run(order=order, resume=True)
    assert sorted(bench.answers()) == sorted(f"r{index}" for index in range(20))


def test_a_run_that_was_as_good_as_done_ends_well(bench):
    """Every line had been read when the signal came."""
    bench.give(*prompts(6))
    assert bench.run(PressedLLM(signal.SIGINT, 5)).succeeded == 6


def test_lines_that_are_no_requests_are_left_too(bench):
    bench.give(*prompts(6), *[b"null"] * 5)
    with pytest.raises(KeyboardInterrupt):
        bench.run(PressedLLM(signal.SIGINT, 1))
    assert len(kept(bench)) == 4
    assert bench.run(resume=True).failed == 5


@NUMBERS
def test_while_a_model_loads_it_stops_at_once(bench, number):
    class Slow(FakeLLM):
        def __enter__(self):
            signal.raise_signal(number)
            return super().__enter__()

    bench.give(*prompts(2))
    llm = Slow(TOKENIZER)
    with pytest.raises(KeyboardInterrupt):
        bench.run(llm)
    assert llm.entered == 0
    assert bench.run(resume=True).succeeded == 2


@NUMBERS
def test_a_handler_of_somebody_else_is_left_alone(bench, number):
    calls = []
    before = signal.signal(number, lambda *args: calls.append(args[0]))
    try:
        bench.give(*prompts(9))
        assert bench.run(PressedLLM(number, 2)).succeeded == 9
    finally:
        signal.signal(number, before)
    assert calls == [number]


@NUMBERS
def test_a_step_of_the_engine_is_not_broken_into_before_the_third(number):
    reached = []

    def press(times):
        with StopSignals() as signals, signals.finishing(), interrupt_held(), interrupt_held():
            for _ in range(times):
                signal.raise_signal(number)
            reached.append(times)

    press(1)
    for times in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            press(times)
    assert reached == [1, 2]


def test_a_signal_in_a_step_that_fails_is_not_raised_in_a_later_one():
    def fail():
        with interrupt_held():
            signal.raise_signal(signal.SIGINT)
            raise OSError("broken")

    with StopSignals() as signals:
        with pytest.raises(OSError, match="broken"):
            fail()
        with interrupt_held():
            pass
        assert not signals.asked
