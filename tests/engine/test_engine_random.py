"""One answer: whatever else runs, however little room there is, each request's outcome equals its outcome alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine_kit import EXACT_REPLAY, Kit, Sizes, make_kit, request, solo
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.engine.request import Request

TOKENS = st.integers(8, 59)
BEGINNINGS = [list(range(10, 34)), [*range(10, 21), *range(40, 53)]]  # the second leaves the first within a block
PROMPTS = st.lists(TOKENS, min_size=1, max_size=24) | st.builds(
    lambda beginning, cut, rest: (beginning[:cut] + rest)[:24],
    st.sampled_from(BEGINNINGS),
    st.integers(1, 24),
    st.lists(TOKENS, min_size=1, max_size=6),
)
PARAMS = st.sampled_from(
    [
        {"temperature": 0.0},
        {"temperature": 0.0, "logprobs": 2},
        {"temperature": 0.0, "prompt_logprobs": 1},
        {"temperature": 0.0, "repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.5},
        {"temperature": 1.5, "seed": 30},
        {"temperature": 1.5, "seed": 31, "n": 3},
        {"temperature": 0.8, "seed": 32, "top_k": 5, "top_p": 0.9, "logprobs": 0},
        {"temperature": 1.0, "seed": 33, "ignore_eos": True, "stop_token_ids": (20, 21, 22)},
        {"temperature": 1.0, "seed": 34, "min_tokens": 3, "logit_bias": {1: 8.0}},
    ]
)


@dataclass(frozen=True)
class Arrival:
    """A request, the step before which it comes, and how many steps later it is aborted, if at all."""

    one: Request
    step: int
    abort_after: int | None


@st.composite
def arrivals(draw: st.DrawFn) -> Arrival:
    prompt = draw(PROMPTS)
    params = dict(draw(PARAMS))
    low = params.get("min_tokens", 0)
    one = request(prompt, max_tokens=draw(st.integers(low, 16)), **params)
    one = replace(one, cache_salt=draw(st.sampled_from([None, None, "a"])))
    aborted = draw(st.none() | st.none() | st.none() | st.integers(0, 12))
    return Arrival(one, draw(st.integers(0, 40)), aborted)


@st.composite
def tight_sizes(draw: st.DrawFn) -> Sizes:
    """Room for any one request (24 + 16 tokens), and often for little more."""
    block_size = draw(st.sampled_from([2, 4, 8]))
    return Sizes(
        slots=draw(st.integers(1, 6)),
        blocks=-(-40 // block_size) + draw(st.integers(0, 12)),
        block_size=block_size,
        step_tokens=draw(st.sampled_from([1, 2, 3, 7, 16, 64])),
        max_length=64,
        overlap=draw(st.booleans()),
        prefix=draw(st.sampled_from([None, EXACT_REPLAY])),
    )


_known: dict[str, RequestOutput] = {}


def alone(one: Request) -> RequestOutput:
    """The outcome of a request alone; each is run once."""
    if repr(one) not in _known:
        _known[repr(one)] = solo(one)
    return _known[repr(one)]


def serve(kit: Kit, requests: list[Arrival]) -> list[RequestOutput]:
    """Run requests as they arrive; checks the scheduler's invariants after every step."""
    due = sorted(range(len(requests)), key=lambda i: requests[i].step)
    keys: dict[int, int] = {}
    done: dict[int, RequestOutput] = {}
    step = 0
    while due or kit.engine.has_unfinished():
        while due and requests[due[0]].step <= step:
            index = due.pop(0)
            keys[index] = kit.engine.add(requests[index].one)
        for index, key in keys.items():
            after = requests[index].abort_after
            if after is not None and step == requests[index].step + after:
                kit.engine.abort(key)
        if kit.engine.has_unfinished():
            for finished in kit.engine.step():
                assert finished.key not in done, "a request ended twice"
                done[finished.key] = finished.output
            kit.scheduler.check()
        step += 1
    return [done[keys[index]] for index in range(len(requests))]


def assert_same_answer(got: RequestOutput, expected: RequestOutput) -> None:
    assert got.error is None
    assert got.outputs == expected.outputs
    assert got.prompt_logprobs == expected.prompt_logprobs
    assert got.prompt_token_ids == expected.prompt_token_ids


def assert_begins_same(got: RequestOutput, expected: RequestOutput) -> None:
    """An aborted request's answers are whole or a beginning of what they would have been."""
    assert got.error is None
    for answer, whole in zip(got.outputs, expected.outputs, strict=True):
        if answer.finish_reason != "abort":
            assert answer == whole
        assert answer.token_ids == whole.token_ids[: len(answer.token_ids)]


@given(tight_sizes(), st.lists(arrivals(), min_size=1, max_size=10))
def test_every_request_equals_its_solo_run(sizes: Sizes, requests: list[Arrival]) -> None:
    kit = make_kit(sizes)
    outputs = serve(kit, requests)
    for arrival, output in zip(requests, outputs, strict=True):
        check = assert_same_answer if arrival.abort_after is None else assert_begins_same
        check(output, alone(arrival.one))
    kit.assert_idle()
    kit.engine.close()


def test_solo_runs_are_what_the_definition_says_in_any_step_size() -> None:
    one = request([11, 12, 13, 9, 30, 31, 32, 33], temperature=0.0, max_tokens=12, prompt_logprobs=3)
    expected = solo(one)
    for step_tokens in (1, 2, 3, 5, 8):
        assert_same_answer(solo(one, Sizes(step_tokens=step_tokens)), expected)
