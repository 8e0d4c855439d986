"""Plugins' schedulers and logits processors, from an option or a request's field to what they do in a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_kit import Sizes, greedy, make_kit, request, run, solo
from engine_texts import tokenizer

from deepinfer_core import LLM, SamplingParams
from deepinfer_core.api import llm as llm_module
from deepinfer_core.api.errors import GenerationError, PluginError, RequestError
from deepinfer_core.interfaces.sampler import SampledRows
from deepinfer_core.interfaces.scheduler import SchedulerLimits, SchedulerRequest
from deepinfer_core.plugin.loader import load_plugins
from deepinfer_core.plugin.registry import Registry
from deepinfer_core.scheduling.native import NativeScheduler

TINY = str(Path(__file__).parents[1] / "data" / "tiny_v41")
GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)


class CountingScheduler(NativeScheduler):
    """The native one, counting what comes in."""

    made: list[CountingScheduler]

    def __init__(self, limits: SchedulerLimits) -> None:
        super().__init__(limits)
        self.added = 0
        self.made.append(self)

    def add(self, request: SchedulerRequest) -> None:
        self.added += 1
        super().add(request)


class Walk:
    """Lifts the token whose id is the number of tokens generated so far, plus one."""

    def apply(self, logits: torch.Tensor, rows: SampledRows) -> torch.Tensor:
        return logits.scatter(1, rows.generated.long()[:, None] + 1, 1000.0)


class Ban:
    """Bans every token but one."""

    def __init__(self, but: int) -> None:
        self._but = but

    def apply(self, logits: torch.Tensor, rows: SampledRows) -> torch.Tensor:
        banned = torch.arange(logits.shape[1]) != self._but
        return logits.masked_fill(banned, -torch.inf)


class Strict:
    """Leaves the logits alone until a row has two tokens, and then gives what `spoil` makes of them."""

    def __init__(self, spoil: Callable[[torch.Tensor], Any]) -> None:
        self._spoil = spoil

    def apply(self, logits: torch.Tensor, rows: SampledRows) -> Any:
        return self._spoil(logits) if bool((rows.generated >= 2).any()) else logits


def refuse(logits: torch.Tensor) -> None:
    raise ValueError("two are enough")


SPOILS = {
    "raises": refuse,
    "another shape": lambda logits: logits[:, :-1],
    "another dtype": torch.Tensor.double,
    "another device": lambda logits: logits.to("meta"),
    "no tensor": torch.Tensor.numpy,
    "nothing": lambda logits: None,
}


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Register factories with every LLM of the test: `install(schedulers={...}, processors={...})`."""

    def install(**kinds: dict[str, Any]) -> None:
        def load(environment: Any) -> Any:
            plugins = load_plugins(environment)
            for kind, factories in kinds.items():
                register = getattr(plugins.registry, kind).registrar("toys")
                for name, factory in factories.items():
                    register(name, factory)
            return plugins

        monkeypatch.setattr(llm_module, "load_plugins", load)

    return install


def open_tiny(**options: Any) -> LLM:
    return LLM(TINY, **{"backend": "cpu", "max_length": 48, "max_running": 3, "block_size": 16, **options})


@pytest.fixture
def counted() -> list[CountingScheduler]:
    CountingScheduler.made = []
    return CountingScheduler.made


def test_a_plugins_scheduler_runs_the_requests(install: Any, counted: list[CountingScheduler]) -> None:
    install(schedulers={"counting": lambda: CountingScheduler})
    with open_tiny() as llm:
        expected = llm.generate([[5, 6], [7]], GREEDY)
    assert not counted
    with open_tiny(scheduler="counting", max_step_tokens=9) as llm:
        found = llm.generate([[5, 6], [7]], GREEDY)
    (scheduler,) = counted
    assert scheduler.added == 2
    assert scheduler.limits.max_step_tokens == 9
    assert [output.outputs for output in found] == [output.outputs for output in expected]


def test_an_unknown_scheduler_is_refused_with_the_nearest_name(install: Any) -> None:
    install(schedulers={"counting": lambda: CountingScheduler})
    with pytest.raises(PluginError, match=r"'countign'; did you mean 'counting'\?; registered: native, counting"):
        open_tiny(scheduler="countign")
    with pytest.raises(PluginError, match=r"did you mean 'native'"):
        open_tiny(scheduler="nativ")


def test_a_scheduler_that_cannot_be_made_is_refused_by_name(install: Any) -> None:
    install(schedulers={"broken": lambda: lambda limits: 1 // 0})
    with pytest.raises(PluginError, match="scheduler 'broken' could not be made: ZeroDivisionError"):
        open_tiny(scheduler="broken")


def test_a_request_gets_the_processors_that_it_names(install: Any) -> None:
    install(processors={"walk": Walk})
    named = {"temperature": 0.0, "max_tokens": 4, "ignore_eos": True, "processors": ["walk"]}
    with open_tiny() as llm:
        plain, walked = llm.generate([[5, 6], [5, 6]], [GREEDY, SamplingParams.from_dict(named)])
        (alone,) = llm.generate([[5, 6]], GREEDY)
    assert walked.outputs[0].token_ids == (1, 2, 3, 4)
    assert plain.outputs == alone.outputs


def test_a_processor_is_made_only_when_a_request_names_it(install: Any) -> None:
    made: list[Walk] = []
    install(processors={"walk": lambda: made.append(Walk()) or made[0]})
    with open_tiny() as llm:
        llm.generate([[5]], GREEDY)
        assert not made
        llm.generate([[5], [6]], GREEDY.replace(processors=("walk",)))
    assert len(made) == 1


def test_an_unknown_processor_fails_its_request_alone(install: Any) -> None:
    install(processors={"walk": Walk})
    with open_tiny() as llm:
        good, bad = llm.generate([[5], [5]], [GREEDY, GREEDY.replace(processors=("walj",))])
    assert good.error is None
    assert isinstance(bad.error, RequestError)
    assert "'walj', which no plugin registers; did you mean 'walk'?; registered: walk" in str(bad.error)


def test_a_processor_that_cannot_be_made_fails_its_request_alone(install: Any) -> None:
    install(processors={"broken": lambda: 1 // 0})
    with open_tiny() as llm:
        good, bad = llm.generate([[5], [5]], [GREEDY, GREEDY.replace(processors=("broken",))])
    assert good.error is None
    assert "logits processor 'broken' of plugin 'toys' could not be made: ZeroDivisionError" in str(bad.error)


def test_a_constraint_engine_that_cannot_be_made_fails_its_request_alone() -> None:
    registry = Registry()
    registry.constraints.registrar("toys")("regex", lambda: 1 // 0)
    kit = make_kit(tokenizer=tokenizer(), constraints=registry.constraints)
    good = greedy([9, 10], max_tokens=3)
    bad, fine = run(kit, [greedy([9], constraint={"regex": "a"}), good])
    assert isinstance(bad.error, PluginError)
    assert "constraint kind 'regex' of plugin 'toys' could not be made" in str(bad.error)
    (alone,) = run(make_kit(tokenizer=tokenizer()), [good])
    assert fine.outputs == alone.outputs


@pytest.mark.parametrize("names", ["walk", ["walk", "walk"], [3], [None]])
def test_processors_are_a_list_of_names_each_once(names: Any) -> None:
    with pytest.raises(RequestError, match="processors = "):
        SamplingParams(processors=names)


def test_processors_apply_in_order_of_their_names() -> None:
    kit = make_kit(processors={"a": Ban(5), "b": Ban(9)})
    (both,) = run(kit, [greedy([11], max_tokens=1, processors=("b", "a"))])
    assert isinstance(both.error, GenerationError)
    kit = make_kit(processors={"a": Walk(), "b": Ban(9)})
    (output,) = run(kit, [greedy([11], max_tokens=2, processors=("b", "a"))])
    assert output.outputs[0].token_ids == (9, 9)


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_a_processor_that_fails_on_a_row_fails_that_request_alone(
    spoil: Callable[[torch.Tensor], Any], caplog: pytest.LogCaptureFixture
) -> None:
    kit = make_kit(processors={"strict": Strict(spoil)})
    long = greedy([12], max_tokens=8, ignore_eos=True, processors=("strict",))
    short = greedy([11], max_tokens=2, ignore_eos=True, processors=("strict",))
    free = request([13], seed=3, max_tokens=8, ignore_eos=True)
    first = kit.engine.add(long)
    kit.engine.step()  # so that `short` has fewer tokens than `long` when that fails
    keys = [first, kit.engine.add(short), kit.engine.add(free)]
    done = {}
    while kit.engine.has_unfinished():
        done |= {finished.key: finished.output for finished in kit.engine.step()}
    failed, *fine = (done[key] for key in keys)
    assert isinstance(failed.error, GenerationError)
    assert "after 2 tokens of the answer" in str(failed.error)
    assert "the logits processor 'strict' failed" in caplog.text
    assert [one.outputs for one in fine] == [
        solo(one).outputs for one in (greedy([11], max_tokens=2, ignore_eos=True), free)
    ]
    kit.assert_idle()


def test_processors_change_nothing_for_others_when_room_is_short() -> None:
    """Preempted and resumed, a processor sees the same number of generated tokens."""
    kit = make_kit(Sizes(slots=4, blocks=10, block_size=4, step_tokens=7), processors={"walk": Walk()})
    asked = [greedy([9 + i, 10, 11], max_tokens=14, ignore_eos=True, processors=("walk",) * (i % 2)) for i in range(6)]
    outputs = run(kit, asked)
    assert kit.engine.stats().preemptions > 0
    for one, output in zip(asked, outputs, strict=True):
        if one.params.processors:
            assert output.outputs[0].token_ids == tuple(range(1, 15))
        else:
            assert output.outputs == solo(one).outputs
