"""The loop itself: overlap, aborts at every moment, a dying device, observers, and nothing kept of what ended."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from engine_kit import Kit, Sizes, greedy, make_kit, run, solo
from fake_model import FakeModel

from deepinfer_core.api.errors import DeviceError, RequestError
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.engine.admission import Admitted
from deepinfer_core.engine.request import Request
from deepinfer_core.engine.sequence import LiveRequest, Sequence
from deepinfer_core.interfaces.observer import Phase
from deepinfer_core.interfaces.scheduler import SchedulerStats
from deepinfer_core.observe.timeline import Timeline

LONG = [9 + i % 40 for i in range(20)]


def finish(kit: Kit) -> dict[int, RequestOutput]:
    done: dict[int, RequestOutput] = {}
    while kit.engine.has_unfinished():
        done |= {finished.key: finished.output for finished in kit.engine.step()}
        kit.scheduler.check()
    return done


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("steps", range(12))
def test_an_abort_at_any_moment_leaves_no_trace(steps: int, overlap: bool) -> None:
    """A prompt of five chunks, aborted before each step of its prefill and of its answer."""
    kit = make_kit(Sizes(step_tokens=6, overlap=overlap))
    neighbour = greedy([11, 12, 13], max_tokens=14, ignore_eos=True)
    key = kit.engine.add(neighbour)
    victim = kit.engine.add(greedy(LONG, max_tokens=6, ignore_eos=True))
    done: dict[int, RequestOutput] = {}
    for _ in range(steps):
        done |= {finished.key: finished.output for finished in kit.engine.step()}
    kit.engine.abort(victim)
    done |= finish(kit)
    assert done[key].outputs == solo(neighbour).outputs
    (answer,) = done[victim].outputs
    assert answer.finish_reason == ("length" if len(answer.token_ids) == 6 else "abort")
    kit.assert_idle()


def test_an_abort_of_what_has_ended_does_nothing() -> None:
    kit = make_kit()
    key = kit.engine.add(greedy([9], max_tokens=2))
    finish(kit)
    kit.engine.abort(key)
    kit.engine.abort(999)
    assert not kit.engine.has_unfinished()


def test_the_same_name_twice_is_two_requests() -> None:
    kit = make_kit()
    first = kit.engine.add(greedy([9, 10], "same", max_tokens=8))
    kit.engine.abort(first)
    second = kit.engine.add(greedy([9, 10], "same", max_tokens=8))
    done = finish(kit)
    assert done[first].outputs[0].finish_reason == "abort"
    assert done[second].outputs == solo(greedy([9, 10], max_tokens=8)).outputs


class GatedModel(FakeModel):
    """A model whose forwards wait until the test lets them go on."""

    gate = threading.Semaphore(0)

    def forward(self, step: Any, pools: Any) -> Any:
        self.gate.acquire()
        return super().forward(step, pools)


@pytest.mark.parametrize(("overlap", "ahead"), [(True, 2), (False, 1)])
def test_the_next_step_is_submitted_before_this_one_has_run(overlap: bool, ahead: int) -> None:
    model = GatedModel()
    kit = make_kit(Sizes(overlap=overlap), model=model)
    kit.engine.add(greedy([9, 10], max_tokens=4, ignore_eos=True))
    stepping = threading.Thread(target=finish, args=(kit,))
    stepping.start()
    while kit.queue.submitted < ahead:  # would hang if the loop waited for the first step
        pass
    for _ in range(20):
        model.gate.release()
    stepping.join()
    assert not kit.engine.has_unfinished()


@pytest.mark.parametrize("overlap", [True, False])
def test_a_dead_device_keeps_what_was_finished_and_says_so_ever_after(overlap: bool) -> None:
    fatal = 3
    kit = make_kit(Sizes(overlap=overlap), model=FakeModel(broken_token=fatal))
    good = kit.engine.add(greedy([9], max_tokens=1))
    refused = kit.engine.add(greedy([], max_tokens=1))
    assert {finished.key for finished in kit.engine.step() + kit.engine.step()} == {good, refused}
    kit.engine.add(greedy([fatal], max_tokens=4))
    with pytest.raises(DeviceError, match="RuntimeError: the device lost its way"):
        finish(kit)
    with pytest.raises(DeviceError):
        kit.engine.step()
    with pytest.raises(DeviceError):
        kit.engine.add(greedy([9]))


def test_outcomes_of_the_step_in_which_the_device_dies_are_handed_out() -> None:
    kit = make_kit(model=FakeModel(broken_token=3))
    kit.engine.add(greedy([3], max_tokens=4))
    kit.engine.step()
    refused = kit.engine.add(greedy([], max_tokens=1))
    assert [finished.key for finished in kit.engine.step()] == [refused]
    with pytest.raises(DeviceError):
        kit.engine.step()


def test_settling_completes_the_step_in_flight_and_submits_none() -> None:
    kit = make_kit()
    key = kit.engine.add(greedy([9], max_tokens=1))
    kit.engine.step()
    before = kit.queue.submitted
    assert [finished.key for finished in kit.engine.settle()] == [key]
    assert kit.queue.submitted == before
    kit.assert_idle()


class Recorder:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.steps: list[tuple[int, int, SchedulerStats]] = []
        self.outputs: list[RequestOutput] = []

    def on_phase(self, phase: Phase) -> None:
        self.phases.append(phase)

    def on_step(self, step: int, rows: int, stats: SchedulerStats) -> None:
        self.steps.append((step, rows, stats))

    def on_finish(self, output: RequestOutput) -> None:
        self.outputs.append(output)


def test_observers_see_every_phase_step_and_outcome() -> None:
    recorder, timeline = Recorder(), Timeline()
    kit = make_kit(observers=(recorder, timeline))
    outputs = run(kit, [greedy([9, 10], max_tokens=3, ignore_eos=True), greedy([])])
    assert recorder.outputs == [outputs[1], outputs[0]]
    steps = [step for step, _, _ in recorder.steps]
    assert steps == sorted(set(steps))
    assert [rows for _, rows, _ in recorder.steps][:3] == [2, 1, 1]
    for step in steps:
        names = {phase.name for phase in recorder.phases if phase.step == step}
        assert names == {"plan", "build", "submit", "wait", "commit", "output", "forward", "sample"}
    assert all(phase.start_ns <= phase.end_ns for phase in recorder.phases)
    assert {phase.name for phase in recorder.phases if phase.device} == {"forward", "sample"}


def live_objects() -> list[object]:
    """Whatever the process still holds of requests."""
    gc.collect()
    kinds = {LiveRequest, Sequence, Admitted, RequestOutput}
    return [one for one in gc.get_objects() if type(one) in kinds]


@pytest.mark.parametrize("overlap", [True, False])
def test_nothing_is_kept_of_requests_that_ended(overlap: bool) -> None:
    before = len(live_objects())
    kit = make_kit(Sizes(slots=2, overlap=overlap))
    keys = [kit.engine.add(greedy([9 + i, 10], max_tokens=3, n=1 + i % 2)) for i in range(6)]
    assert len(live_objects()) > before
    kit.engine.abort(keys[3])
    finish(kit)
    kit.assert_idle()
    assert len(live_objects()) == before


@pytest.mark.parametrize("params", [{}, {"frequency_penalty": 2.0}, {"min_tokens": 14, "logit_bias": {1: 20.0}}])
def test_preemptions_are_counted_and_change_nothing(params: dict[str, Any]) -> None:
    params = {"max_tokens": 16, "ignore_eos": "min_tokens" not in params, **params}
    requests = [greedy([9 + i, 10, 11, 12], **params) for i in range(4)]
    kit = make_kit(Sizes(slots=4, blocks=9))
    outputs = run(kit, requests)
    assert sum(output.metrics.preemptions for output in outputs if output.metrics) == kit.engine.stats().preemptions > 0
    for output, one in zip(outputs, requests, strict=True):
        assert output.outputs == solo(one).outputs


@pytest.mark.parametrize("ids", [7, {5: 6}, np.array([5, 6])])
def test_what_is_no_list_of_ids_fails_its_request_alone(ids: Any) -> None:
    kit = make_kit()
    good = greedy([9, 10], max_tokens=4)
    bad, fine = run(kit, [Request("bad", prompt_token_ids=ids), good])
    assert isinstance(bad.error, RequestError)
    assert f"prompt_token_ids is a {type(ids).__name__}" in str(bad.error)
    assert bad.prompt_token_ids == ()
    assert fine.outputs == solo(good).outputs


class Breaking(Recorder):
    """An observer in which an interrupt comes when it is told of a phase."""

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__()
        self._name, self._error = name, error

    def on_phase(self, phase: Phase) -> None:
        if phase.name == self._name and phase.step == 1:
            raise self._error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit("no disk")])
@pytest.mark.parametrize("name", ["plan", "build", "wait", "commit", "output"])
def test_an_engine_whose_step_was_broken_off_says_so_ever_after(name: str, error: BaseException) -> None:
    kit = make_kit(observers=[Breaking(name, error)])
    kit.engine.add(greedy([9, 10], max_tokens=9, ignore_eos=True))
    with pytest.raises(type(error)):
        finish(kit)
    kit.engine.settle()
    with pytest.raises(DeviceError, match=f"broken off by {type(error).__name__}"):
        kit.engine.step()
    with pytest.raises(DeviceError, match="make a new engine"):
        kit.engine.add(greedy([9]))
    kit.engine.close()
