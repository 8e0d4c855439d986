"""Constrained requests, with a toy engine: masks come from the host between forward and sampling."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from engine_kit import Kit, Sizes, greedy, make_kit, request, run, solo
from engine_texts import EOS, VOCAB, tokenizer

from deepinfer_core.api.errors import GenerationError, RequestError
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.engine.request import Request


class WalkMatcher:
    """Allows the tokens of a list of sets, one set a place; after the last set nothing but the end may follow."""

    def __init__(self, sets: Sequence[Sequence[int]], end_tokens: Sequence[int]) -> None:
        self._sets = sets
        self._end_tokens = end_tokens
        self.taken: list[int] = []

    def mask(self, drafts: Sequence[int], out: np.ndarray) -> None:
        place = len(self.taken)
        allowed = self._sets[place] if place < len(self._sets) else self._end_tokens
        if "broken" in allowed:
            raise ValueError("a matcher that cannot go on")
        assert not out.any(), "the engine hands over an empty mask"
        for token in allowed:
            out[0, token >> 5] |= np.array(1 << (token & 31), dtype=np.uint32).astype(np.int32)

    def advance(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if token not in self._sets[len(self.taken)]:
                raise GenerationError(f"token {token} is not allowed")
            self.taken.append(token)

    def rollback(self, count: int) -> None:
        del self.taken[len(self.taken) - count :]

    @property
    def finished(self) -> bool:
        return len(self.taken) == len(self._sets)


class WalkEngine:
    """Compiles {"walk": [[token, ...], ...]}. `gate`, when given, holds up every compilation."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self._gate = gate
        self.end_tokens: list[tuple[int, ...]] = []
        self.matchers: list[WalkMatcher] = []  # in the order in which they were made

    def compile(self, kind: str, spec: Any, tokenizer: Any, eos_token_ids: Sequence[int]) -> Walk | None:
        assert kind == "walk"
        if self._gate is not None:
            self._gate.wait()
        if not spec:
            raise RequestError("an empty walk leads nowhere")
        if spec == "forgotten":
            return None
        if spec == "crash":
            raise ZeroDivisionError("in the grammar")
        self.end_tokens.append(tuple(eos_token_ids))
        return Walk(self, spec, eos_token_ids)


class Walk:
    def __init__(self, engine: WalkEngine, spec: Any, end_tokens: Sequence[int]) -> None:
        self._engine, self._spec, self._end_tokens = engine, spec, end_tokens

    def matcher(self) -> WalkMatcher | None:
        if self._spec[0] == ["forgotten"]:
            return None
        if self._spec[0] == ["no matcher"]:
            raise KeyError("no matcher")
        made = WalkMatcher(self._spec, self._end_tokens)
        self._engine.matchers.append(made)
        return made


def walk(sets: Any, name: str = "r", **params: Any) -> Request:
    return request([9, 10], name, constraint={"walk": sets}, **{"seed": 4, "max_tokens": 20, **params})


def constrained_kit(engine: WalkEngine | None = None, **sizes: Any) -> Kit:
    return make_kit(Sizes(**sizes), tokenizer=tokenizer(), constraints={"walk": engine or WalkEngine()})


def alone(one: Request) -> RequestOutput:
    (output,) = run(constrained_kit(), [one])
    return output


@pytest.mark.parametrize("overlap", [True, False])
def test_every_token_is_one_that_the_constraint_allows(overlap: bool) -> None:
    sets = [[20, 21], [40], [8, 41, 42], [55, 56, 57, 58]]
    engine = WalkEngine()
    (output,) = run(constrained_kit(engine, overlap=overlap), [walk(sets)])
    (answer,) = output.outputs
    assert all(token in allowed for token, allowed in zip(answer.token_ids, sets, strict=True))
    assert (answer.finish_reason, answer.stop_reason) == ("stop", None)
    assert engine.matchers[0].taken == list(answer.token_ids)


def test_the_end_of_the_constraint_wins_over_min_tokens() -> None:
    output = alone(walk([[20], [21]], min_tokens=5))
    assert output.outputs[0].token_ids == (20, 21)


def test_end_tokens_are_told_to_the_constraint() -> None:
    engine = WalkEngine()
    kit = constrained_kit(engine)
    run(kit, [walk([[20]], stop_token_ids=[40]), walk([[20]], ignore_eos=True, stop_token_ids=[41])])
    assert sorted(engine.end_tokens) == [(1, 7, 40), (41,)]


def test_an_end_token_that_is_allowed_ends_the_answer_and_is_no_part_of_the_constraint() -> None:
    engine = WalkEngine()
    (output,) = run(constrained_kit(engine), [walk([[20], [EOS], [22]])])
    assert output.outputs[0].token_ids == (20, EOS)
    assert engine.matchers[0].taken == [20]


@pytest.mark.parametrize("overlap", [True, False])
def test_free_requests_beside_constrained_ones_equal_their_solo_runs(overlap: bool) -> None:
    free = [greedy([11 + i, 12], max_tokens=4 + 3 * i, ignore_eos=True) for i in range(4)]
    bound = [walk([[20 + i, 30 + i]] * (3 + 2 * i), seed=i) for i in range(4)]
    mixed = [one for pair in zip(free, bound, strict=True) for one in pair]
    kit = constrained_kit(overlap=overlap, slots=5, step_tokens=7)
    for output, one in zip(run(kit, mixed), mixed, strict=True):
        assert output.error is None
        expected = alone(one) if one.params.constraint else solo(one)
        assert [answer.token_ids for answer in output.outputs] == [answer.token_ids for answer in expected.outputs]
    kit.assert_idle()


def test_a_constrained_answer_survives_preemption() -> None:
    bound = [walk([[20, 30, 40]] * 16, name=str(i), seed=i) for i in range(3)]
    kit = constrained_kit(blocks=7)
    outputs = run(kit, bound)
    assert kit.engine.stats().preemptions > 0
    for output, one in zip(outputs, bound, strict=True):
        assert output.outputs == alone(one).outputs


@pytest.mark.parametrize(
    ("sets", "error", "match"),
    [
        ([], RequestError, "an empty walk leads nowhere"),
        ("crash", RequestError, "ZeroDivisionError: in the grammar"),
        ("forgotten", RequestError, "its plugin gave None"),
        ([[20], ["broken"]], GenerationError, "a matcher that cannot go on"),
        ([[20], []], GenerationError, "after 1 tokens"),
        ([["no matcher"]], GenerationError, "KeyError: 'no matcher'"),
        ([["forgotten"]], GenerationError, "gave None for a matcher"),
    ],
)
@pytest.mark.parametrize("overlap", [True, False])
def test_a_constraint_that_fails_fails_its_request_alone(
    sets: Any, error: type[RequestError], match: str, overlap: bool
) -> None:
    neighbour = walk([[20, 21, 22]] * 6, name="good")
    kit = constrained_kit(overlap=overlap)
    good, bad = run(kit, [neighbour, walk(sets, name="bad")])
    assert isinstance(bad.error, error)
    assert match in str(bad.error)
    assert good.outputs == alone(neighbour).outputs
    kit.assert_idle()


def test_other_requests_step_while_a_constraint_is_compiled() -> None:
    gate = threading.Event()
    kit = constrained_kit(WalkEngine(gate))
    slow = kit.engine.add(walk([[20], [21]]))
    quick = kit.engine.add(greedy([11, 12], max_tokens=5))
    done: dict[int, RequestOutput] = {}
    while quick not in done:
        done |= {finished.key: finished.output for finished in kit.engine.step()}
    assert slow not in done
    gate.set()
    while kit.engine.has_unfinished():
        done |= {finished.key: finished.output for finished in kit.engine.step()}
    assert done[slow].outputs[0].token_ids == (20, 21)


def test_a_request_can_be_aborted_while_its_constraint_is_compiled() -> None:
    gate = threading.Event()
    kit = constrained_kit(WalkEngine(gate))
    key = kit.engine.add(walk([[20]], n=2))
    kit.engine.abort(key)
    (finished,) = kit.engine.step()
    assert [answer.finish_reason for answer in finished.output.outputs] == ["abort", "abort"]
    gate.set()
    kit.assert_idle()


def test_the_mask_covers_the_whole_vocabulary() -> None:
    assert alone(walk([[VOCAB - 1], [0], [31], [32]])).outputs[0].token_ids == (VOCAB - 1, 0, 31, 32)
