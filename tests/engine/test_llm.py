"""LLM: prompts in, outputs in order, errors as data, streams that pull no faster than they answer."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deepinfer_core
from deepinfer_core import LLM, DeepInferError, RequestOutput, SamplingParams
from deepinfer_core.api.errors import ConfigError, DeviceError, PromptTooLong, RequestError, UnsupportedRequest
from deepinfer_core.api.interrupt import interrupt_held
from deepinfer_core.api.llm import IN_FLIGHT
from deepinfer_core.engine.request import Request
from deepinfer_core.engine.runner import Runner

TINY = str(Path(__file__).parents[1] / "data" / "tiny_v41")
OPTIONS: dict[str, Any] = {
    "backend": "cpu",
    "max_length": 48,
    "max_running": 3,
    "block_size": 16,
    "max_step_tokens": 32,
}
SHORT = SamplingParams(temperature=0.0, max_tokens=3)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(TINY, **OPTIONS) as made:
        yield made


@pytest.fixture(autouse=True)
def _idle(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test does with the shared LLM, it ends with nothing in the engine."""
    yield
    if "llm" in request.fixturenames:
        made = request.getfixturevalue("llm")
        stats = made.engine.stats()
        assert (stats.waiting, stats.running, stats.used_blocks) == (0, 0, 0)
        assert made._finished == {}


def tokens(output: RequestOutput) -> list[tuple[int, ...]]:
    assert output.error is None
    return [answer.token_ids for answer in output.outputs]


def requests(count: int, **params: Any) -> Iterator[Request]:
    for i in range(count):
        asked = SamplingParams(**{"temperature": 0.0, "max_tokens": 1 + i % 4, **params})
        yield Request(str(i), prompt_token_ids=(5 + i, 6), params=asked)


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, deepinfer_core; print('torch' in sys.modules, dir(deepinfer_core))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("False")
    assert all(name in printed for name in deepinfer_core.__all__)
    assert deepinfer_core.DeepInferError is DeepInferError
    with pytest.raises(AttributeError, match="no attribute 'LMM'"):
        _ = deepinfer_core.LMM


def test_prompts_may_come_in_many_shapes(llm: LLM) -> None:
    one = tokens(llm.generate([5, 6, 7], SHORT)[0])
    for prompts in ([[5, 6, 7]], ((5, 6, 7),), iter([[5, 6, 7]])):
        (output,) = llm.generate(prompts, SHORT)
        assert tokens(output) == one
    assert llm.generate([], SHORT) == []


def test_outputs_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = [[5 + i, 6] for i in range(9)]
    params = [SamplingParams(temperature=0.0, max_tokens=9 - i) for i in range(9)]
    outputs = llm.generate(prompts, params)
    assert [list(output.prompt_token_ids) for output in outputs] == prompts
    assert [output.request_id for output in outputs] == [str(i) for i in range(9)]
    assert [len(tokens(output)[0]) for output in outputs] == [9 - i for i in range(9)]


def test_what_is_wrong_with_one_request_is_its_own_error(llm: LLM) -> None:
    prompts: list[Any] = [[5, 6], "text", [], [5] * 48, None, [5, "a"], [5, 6], [5, 6], [5, 6]]
    params: list[Any] = [SHORT] * 6 + [{"temprature": 0.0}, 7, {"max_tokens": 2, "temperature": 0.0}]
    outputs = llm.generate(prompts, params)
    kinds = [type(output.error) for output in outputs]
    assert kinds[:4] == [type(None), UnsupportedRequest, RequestError, PromptTooLong]
    assert kinds[4:] == [RequestError, RequestError, RequestError, RequestError, type(None)]
    assert "did you mean 'temperature'" in str(outputs[6].error)
    assert tokens(outputs[0])[0][:2] == tokens(outputs[8])[0]


def test_as_many_parameters_as_prompts(llm: LLM) -> None:
    with pytest.raises(RequestError, match="3 prompts came with 2"):
        llm.generate([[5], [6], [7]], [SHORT, SHORT])
    with pytest.raises(RequestError, match="prompts is a int"):
        llm.generate(5, SHORT)  # type: ignore[arg-type]


def test_progress_is_shown_when_asked_for(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate([[5, 6]] * 3, SHORT, progress=True)
    assert "3/3 requests" in capsys.readouterr().err
    llm.generate([[5, 6]], SHORT)
    assert capsys.readouterr().err == ""


def test_a_stream_gives_every_output_once(llm: LLM) -> None:
    outputs = {output.request_id: output for output in llm.stream(requests(20))}
    assert sorted(outputs, key=int) == [str(i) for i in range(20)]
    alone = llm.generate(
        [[5 + i, 6] for i in range(4)], [SamplingParams(temperature=0.0, max_tokens=1 + i) for i in range(4)]
    )
    assert [tokens(outputs[str(i)]) for i in range(4)] == [tokens(output) for output in alone]


@pytest.mark.parametrize(("n", "limit"), [(1, IN_FLIGHT * 3), (4, 2)])
def test_a_stream_pulls_no_faster_than_it_answers(llm: LLM, n: int, limit: int) -> None:
    pulled = given = 0

    def source() -> Iterator[Request]:
        nonlocal pulled
        for one in requests(30, n=n, seed=1, temperature=1.0):
            pulled += 1
            yield one

    for _ in llm.stream(source()):
        given += 1
        assert pulled - given < limit + 1
    assert given == pulled == 30


def test_an_endless_source_can_be_left(llm: LLM) -> None:
    def source() -> Iterator[Request]:
        while True:
            yield from requests(4)

    stream = llm.stream(source())
    assert [next(stream).error for _ in range(10)] == [None] * 10
    stream.close()
    assert len(tokens(llm.generate([5, 6], SHORT)[0])) == 1


def test_a_stream_of_prompts_is_refused_in_words(llm: LLM) -> None:
    with pytest.raises(RequestError, match="stream was given a str: give Request objects"):
        list(llm.stream(["Once upon a time"]))  # type: ignore[list-item]


def test_a_stream_gives_outputs_in_order_of_completion(llm: LLM) -> None:
    """Also those that ended while another stream was asked."""
    first = llm.stream(
        Request(str(i), prompt_token_ids=(5 + i,), params=SHORT.replace(max_tokens=n, ignore_eos=True))
        for i, n in enumerate((1, 9, 4))
    )
    assert next(first).request_id == "0"
    list(llm.stream(requests(1, max_tokens=20, ignore_eos=True)))
    assert [output.request_id for output in first] == ["2", "1"]


def test_streams_may_take_turns(llm: LLM) -> None:
    one, two = llm.stream(requests(9)), llm.stream(requests(9))
    found: list[list[str]] = [[], []]
    for _ in range(9):
        for place, stream in enumerate((one, two)):
            found[place].append(next(stream).request_id)
    assert [sorted(names) for names in found] == [[str(i) for i in range(9)]] * 2
    assert list(one) == list(two) == []


def test_a_source_that_raises_takes_its_requests_along(llm: LLM) -> None:
    def source() -> Iterator[Request]:
        yield from requests(2, max_tokens=8)
        raise OSError("the file ended")

    with pytest.raises(OSError, match="the file ended"):
        list(llm.stream(source()))


class Interrupting:
    """An observer that presses Ctrl-C in the middle of a step."""

    def __init__(self) -> None:
        self.at: str | None = None

    def on_phase(self, phase: Any) -> None:
        if phase.name == self.at:
            self.at = None
            signal.raise_signal(signal.SIGINT)

    def on_step(self, step: int, rows: int, stats: Any) -> None:
        pass

    def on_finish(self, output: Any) -> None:
        pass


@pytest.mark.parametrize("overlap", [True, False])
def test_an_interrupted_call_leaves_the_engine_usable(overlap: bool) -> None:
    observer = Interrupting()
    with LLM(TINY, observers=[observer], overlap=overlap, **OPTIONS) as made:
        expected = tokens(made.generate([5, 6], SHORT)[0])
        for phase in ("plan", "build", "commit", "output"):
            observer.at = phase
            with pytest.raises(KeyboardInterrupt):
                made.generate([[7, 8, 9]] * 5, SamplingParams(max_tokens=20))
            assert made.engine.stats().running == made.engine.stats().waiting == 0
            assert tokens(made.generate([5, 6], SHORT)[0]) == expected


def press(times: int, reached: list[int]) -> None:
    """Press Ctrl-C in a block that holds it."""
    with interrupt_held():
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        reached.append(times)


@pytest.mark.parametrize(("times", "expected"), [(1, [1]), (2, [])])
def test_an_interrupt_waits_for_the_end_of_the_block_and_a_second_one_does_not(times: int, expected: list[int]) -> None:
    reached: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        press(times, reached)
    assert reached == expected
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_somebody_else_is_left_alone() -> None:
    calls: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    try:
        with interrupt_held():
            signal.raise_signal(signal.SIGINT)
            assert calls == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    """An LLM whose device fails in its fifth step."""
    run, steps = Runner.run, []

    def failing(self: Runner, step: Any) -> Any:
        steps.append(step)
        if len(steps) == 5:
            raise RuntimeError("out of memory")
        return run(self, step)

    monkeypatch.setattr(Runner, "run", failing)
    with LLM(TINY, **OPTIONS) as made:
        yield made


def test_a_dead_device_costs_only_what_was_not_finished(dying: LLM) -> None:
    params = [SamplingParams(temperature=0.0, max_tokens=1 + 7 * (i > 0), ignore_eos=True) for i in range(6)]
    outputs = dying.generate([[5 + i] for i in range(6)], params)
    assert len(tokens(outputs[0])[0]) == 1
    assert all(isinstance(output.error, DeviceError) and "out of memory" in str(output.error) for output in outputs[1:])
    again = dying.generate([5], SHORT)
    assert isinstance(again[0].error, DeviceError)


def test_a_stream_ends_with_the_device(dying: LLM) -> None:
    found: list[RequestOutput] = []
    with pytest.raises(DeviceError):
        found.extend(dying.stream(requests(50, ignore_eos=True)))
    assert 0 < len(found) < 50
    assert all(tokens(output) for output in found)
    with pytest.raises(DeviceError):
        list(dying.stream(requests(1)))


def test_a_closed_llm_says_so() -> None:
    made = LLM(TINY, **OPTIONS)
    made.close()
    made.close()
    (output,) = made.generate([5], SHORT)
    assert "closed" in str(output.error)


def test_a_stream_of_an_llm_that_was_closed_says_so() -> None:
    with LLM(TINY, **OPTIONS) as made:
        stream = made.stream(requests(40))
        next(stream)
    with pytest.raises(DeviceError, match="this LLM is closed"):
        list(stream)


def test_without_a_tokenizer_chat_is_refused(llm: LLM) -> None:
    assert llm.tokenizer is None
    with pytest.raises(UnsupportedRequest, match="chat needs a tokenizer"):
        llm.chat([{"role": "user", "content": "hello"}])


def test_the_report_names_the_backend(llm: LLM) -> None:
    assert llm.report[0].startswith("backend cpu: asked for")


def test_an_unknown_option_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'max_running'"):
        LLM(TINY, max_runing=3)
