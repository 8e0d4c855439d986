"""Graph capture: a replay is an eager run on what the inputs hold by then. The whole area is for who claims it."""

from __future__ import annotations

from functools import partial
from typing import cast

import pytest
import torch
from torch import Tensor

from deepinfer_conformance.laws.moving import HOST, moved, same_bits
from deepinfer_conformance.subject import Subject
from deepinfer_core.interfaces.backend import Graph, GraphDevice, GraphRunner
from deepinfer_core.interfaces.ops import RowFormat, WeightFormat
from deepinfer_core.ops.cases import Maker
from deepinfer_core.ops.linear import linear as reference_linear
from deepinfer_core.ops.norm import rms_norm as reference_norm

capture = pytest.mark.capability("graph_capture")
ROWS, DIM, OUT = 6, 64, 48


class Layer:
    """Two ops in a row on inputs that stay where they are."""

    def __init__(self, subject: Subject, seed: int) -> None:
        make = Maker(HOST, torch.float32, seed)
        self.on_host = (make.normal(ROWS, DIM), make.normal(DIM), make.weight(WeightFormat.F32, OUT, DIM))
        self.x, self.scale, self.weight = moved(self.on_host, subject.torch_device)
        self._ops = subject.ops

    def __call__(self) -> Tensor:
        return self._ops.linear(self._ops.rms_norm(self.x, self.scale, 1e-6), self.weight, False)

    def expected(self, x: Tensor) -> Tensor:
        """What the references give for x on the host."""
        _, scale, weight = self.on_host
        return reference_linear(reference_norm(x, scale, 1e-6), weight, False)


def result_of(graph: Graph[Tensor]) -> Tensor:
    return graph.result.cpu()


def runner_of(subject: Subject) -> GraphRunner:
    return cast(GraphDevice, subject.device).graph_runner()


@pytest.mark.level("smoke")
def test_graphs_are_claimed_by_devices_that_have_a_runner_and_by_no_others(subject: Subject) -> None:
    has = isinstance(subject.device, GraphDevice) and isinstance(subject.device.graph_runner(), GraphRunner)
    assert has == subject.capabilities.graph_capture


@capture
def test_a_replay_has_the_bits_of_an_eager_run(subject: Subject, seed: int) -> None:
    layer, runner = Layer(subject, seed), runner_of(subject)
    eager = subject.run(layer).cpu()
    graph = subject.run(lambda: runner.capture(layer))
    assert same_bits(subject.run(partial(result_of, graph)), eager)
    subject.run(lambda: graph.result.fill_(torch.nan))
    subject.run(graph.replay)
    assert same_bits(subject.run(partial(result_of, graph)), eager)
    torch.testing.assert_close(eager, layer.expected(layer.on_host[0]), atol=1e-4, rtol=1e-4)


@capture
def test_a_replay_reads_what_its_inputs_hold_by_then(subject: Subject, seed: int) -> None:
    layer, runner = Layer(subject, seed), runner_of(subject)
    graph = subject.run(lambda: runner.capture(layer))
    for change in range(3):
        x = Maker(HOST, torch.float32, seed + 1 + change).normal(ROWS, DIM)
        subject.run(partial(layer.x.copy_, x))
        subject.run(graph.replay)
        replayed = subject.run(partial(result_of, graph))
        assert same_bits(replayed, subject.run(layer))
        torch.testing.assert_close(replayed, layer.expected(x), atol=1e-4, rtol=1e-4)


@capture
def test_rows_of_padding_leave_no_trace_in_a_replay(subject: Subject, seed: int) -> None:
    """A step of fewer rows than were captured: what is left over is NaN and reaches no row."""
    layer, runner = Layer(subject, seed), runner_of(subject)
    graph = subject.run(lambda: runner.capture(layer))
    x = layer.on_host[0].clone()
    x[2:] = torch.nan
    subject.run(lambda: layer.x.copy_(x))
    subject.run(graph.replay)
    got = subject.run(partial(result_of, graph))
    torch.testing.assert_close(got[:2], layer.expected(layer.on_host[0])[:2], atol=1e-4, rtol=1e-4)


@capture
@pytest.mark.capability("cache.f32")
def test_a_replay_writes_the_rows_that_its_indices_name_by_then(subject: Subject, seed: int) -> None:
    make = Maker(HOST, torch.float32, seed)
    x = make.normal(3, DIM)
    pool, there, dest = moved(
        (torch.zeros(9, 4 * DIM, dtype=torch.uint8), x, torch.tensor([-1, -1, -1])), subject.torch_device
    )
    runner = runner_of(subject)
    graph = subject.run(lambda: runner.capture(lambda: subject.ops.write_rows(pool, there, dest, RowFormat.F32)))
    subject.run(lambda: dest.copy_(torch.tensor([8, -1, 0])))
    subject.run(graph.replay)
    expected = torch.zeros(9, DIM)
    expected[8], expected[0] = x[0], x[2]
    assert torch.equal(pool.cpu().view(torch.float32), expected)


@capture
def test_two_graphs_keep_out_of_each_others_way(subject: Subject, seed: int) -> None:
    first, second, runner = Layer(subject, seed), Layer(subject, seed + 1), runner_of(subject)
    graphs = [subject.run(partial(runner.capture, one)) for one in (first, second)]
    wanted = [one.expected(one.on_host[0]) for one in (first, second)]
    for order in ((0, 1), (1, 0), (0, 0, 1)):
        for number in order:
            subject.run(graphs[number].replay)
        for graph, expected in zip(graphs, wanted, strict=True):
            got = subject.run(partial(result_of, graph))
            torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


@capture
def test_a_capture_that_fails_says_so_and_the_device_goes_on(subject: Subject, seed: int) -> None:
    layer, runner = Layer(subject, seed), runner_of(subject)

    def broken() -> Tensor:
        layer()
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        subject.run(lambda: runner.capture(broken))
    graph = subject.run(lambda: runner.capture(layer))
    subject.run(graph.replay)
    expected = layer.expected(layer.on_host[0])
    torch.testing.assert_close(subject.run(partial(result_of, graph)), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(subject.run(layer).cpu(), expected, atol=1e-4, rtol=1e-4)
