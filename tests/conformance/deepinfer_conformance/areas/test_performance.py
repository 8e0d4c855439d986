"""Performance: how long things take, for the record. Nothing is graded; what is asserted is that it was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial
from time import perf_counter

import pytest
import torch

from deepinfer_conformance.inputs import map_tensors, op_params
from deepinfer_conformance.large import LARGE, large_case
from deepinfer_conformance.records import Note
from deepinfer_conformance.subject import Subject
from deepinfer_core import LLM, SamplingParams
from deepinfer_core.ops.catalogue import CATALOGUE

ROUNDS = 5


def seconds(fn: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The median of a few calls, after one that does not count."""
    fn()
    measured = []
    for _ in range(rounds):
        begun = perf_counter()
        fn()
        measured.append(perf_counter() - begun)
    return statistics.median(measured)


def record(note: Note, what: str, value: float) -> None:
    assert math.isfinite(value)
    assert value >= 0
    note("timing", what, value)


@pytest.mark.level("smoke")
def test_a_queues_round_trip(subject: Subject, note: Note) -> None:
    record(note, "queue round trip, us", 1e6 * seconds(lambda: subject.run(lambda: None)))


def test_transfers(subject: Subject, note: Note) -> None:
    x = torch.zeros(1 << 24, dtype=torch.uint8)
    there = torch.empty_like(x, device=subject.torch_device)
    up = seconds(lambda: subject.run(lambda: there.copy_(x)))
    down = seconds(lambda: subject.run(lambda: x.copy_(there)))
    record(note, "16 MiB to the device, ms", 1e3 * up)
    record(note, "16 MiB to the host, ms", 1e3 * down)


@pytest.mark.level("full")
@pytest.mark.parametrize(("name", "op_dtype"), op_params(*LARGE))
def test_large_ops(subject: Subject, seed: int, note: Note, name: str, op_dtype: str) -> None:
    arguments = large_case(name, getattr(torch, op_dtype), seed, subject.capabilities)
    there = map_tensors(arguments, lambda x: x.to(subject.torch_device))
    assert not CATALOGUE[name].mutates, "repeated calls must do the same work"
    call = partial(getattr(subject.ops, name), **there)
    record(note, f"{name} at a large model's size, {op_dtype}, ms", 1e3 * seconds(lambda: subject.run(call)))


def test_tokens_of_the_tiny_model(llm: Callable[..., LLM], note: Note) -> None:
    model = llm(max_length=256)
    params = SamplingParams(max_tokens=16, temperature=0.0, ignore_eos=True)
    prompts = [list(range(3 + n, 23 + n)) for n in range(16)]
    taken = seconds(lambda: model.generate(prompts, params), rounds=1)
    record(note, "tiny model, 16 requests together, tokens/s", 16 * len(prompts) / taken)
