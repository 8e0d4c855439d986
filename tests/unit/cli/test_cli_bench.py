"""`deepinfer bench`: which measurement runs, with which numbers, and how it is printed."""

import json
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest


@dataclass
class Cost:
    running: int
    plan: float = 1.25
    total: float = float("nan")


@pytest.fixture
def asked(monkeypatch):
    """The arguments of each measurement."""
    calls = []

    def measure(*args):
        calls.append(args)
        return [Cost(1), Cost(64)]

    for name in ("schedule", "observers", "throughput", "ops"):
        fake = SimpleNamespace(render=lambda results: f"{len(results)} results", **{f"measure_{name}": measure})
        monkeypatch.setitem(sys.modules, f"deepinfer_core.bench.{name}", fake)
    return calls


def test_schedule(deepinfer, asked):
    code, out, _ = deepinfer("bench", "schedule", "--running", "1,64", "--steps", "9")
    assert (code, out) == (0, "2 results\n")
    assert asked == [([1, 64], 9)]


def test_observers(deepinfer, asked):
    assert deepinfer("bench", "observers", "--steps", "9")[:2] == (0, "2 results\n")
    assert asked == [(9,)]


def test_throughput(deepinfer, asked):
    code, out, _ = deepinfer("bench", "throughput", "-m", "folder", "--batch", "2", "--answer-tokens", "5")
    assert (code, out) == (0, "2 results\n")
    ((config, *numbers),) = asked
    assert config.model == "folder"
    assert numbers == [[2], 64, 5]


def test_ops(deepinfer, asked):
    assert deepinfer("bench", "ops", "--batch", "4", "--backend", "cpu")[0] == 0
    ((config, batch),) = asked
    assert (config.backend, batch) == ("cpu", 4)


def test_json(deepinfer, asked):
    lines = deepinfer("bench", "schedule", "--json")[1].splitlines()
    assert [json.loads(line)["running"] for line in lines] == [1, 64]
    assert json.loads(lines[0])["total"] is None


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["everything"],
        ["schedule", "--running", "0"],
        ["schedule", "--running", "9" * 5000],
        ["ops", "--batch", "1,2"],
    ],
)
def test_wrong_usage(deepinfer, asked, words):
    assert deepinfer("bench", *words)[0] == 2
    assert asked == []
