"""The device: transfers, memory and the execution queue, on which an engine's overlap of host and device rests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

from deepinfer_conformance.inputs import computed, expected, host_cases, map_tensors
from deepinfer_conformance.program import describe_program
from deepinfer_conformance.subject import Subject
from deepinfer_conformance.yardstick import elementwise
from deepinfer_core.api.errors import DeepInferError
from deepinfer_core.interfaces.backend import Event, Queue
from deepinfer_core.ops.catalogue import CATALOGUE

DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
)
PATIENCE = 60.0  # seconds after which a test gives up on something that must come; nothing is timed
IMPATIENCE = 5.0  # seconds that a queue which runs functions inside `submit` is held up before the test says so


@pytest.fixture
def queue(subject: Subject) -> Iterator[Queue]:
    made = subject.device.queue()
    yield made
    made.close()


def bytes_of(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)


def some_bytes(dtype: torch.dtype, *shape: int) -> Tensor:
    """Every bit pattern that the dtype can have, NaN's payloads included."""
    if dtype is torch.bool:
        return torch.arange(max(1, torch.Size(shape).numel())).view(*shape) % 3 == 0
    size = torch.empty(0, dtype=dtype).element_size()
    drawn = torch.randint(0, 256, (*shape, size), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)
    return drawn.view(dtype)[..., 0]


# --- transfers and memory --------------------------------------------------------------------------------------------


@pytest.mark.level("smoke")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_numbers_go_there_and_come_back_bit_for_bit(device: torch.device, dtype: torch.dtype) -> None:
    for shape in ((1,), (257,), (33, 65), (3, 5, 7)):
        x = some_bytes(dtype, *shape)
        assert bytes_of(x.to(device).cpu()).equal(bytes_of(x)), shape


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_slices_and_nothing_go_there_and_come_back(device: torch.device, dtype: torch.dtype) -> None:
    x = some_bytes(dtype, 12, 10)
    there = x.to(device)
    assert bytes_of(there[2:7, 3:8].cpu()).equal(bytes_of(x[2:7, 3:8]))
    assert bytes_of(there.t()[1:4].cpu()).equal(bytes_of(x.t()[1:4]))
    assert x[:0].to(device).cpu().shape == (0, 10)


def test_a_tensor_made_on_the_device_is_there(device: torch.device) -> None:
    assert torch.empty(3, device=device).device.type == device.type


@pytest.mark.level("smoke")
def test_memory_is_a_share_of_the_total(subject: Subject) -> None:
    held = torch.zeros(1 << 20, device=subject.torch_device)
    free, total = subject.device.memory()
    assert isinstance(free, int)
    assert isinstance(total, int)
    assert 0 < free <= total
    assert total > held.numel() * held.element_size()


def test_memory_can_be_asked_for_while_work_is_in_flight(subject: Subject, queue: Queue) -> None:
    gate = threading.Event()
    event = queue.submit(lambda: gate.wait(PATIENCE))
    free, total = subject.device.memory()
    gate.set()
    assert event.wait()
    assert 0 < free <= total


def test_too_large_an_allocation_is_an_error_and_the_device_goes_on(subject: Subject) -> None:
    _, total = subject.device.memory()

    def demand() -> Tensor:
        return torch.empty(64 * total, dtype=torch.uint8, device=subject.torch_device)

    with pytest.raises((MemoryError, RuntimeError, DeepInferError)):
        subject.run(demand)
    assert subject.run(lambda: float(torch.ones(9, device=subject.torch_device).sum())) == 9.0


def test_kernels_leave_the_programs_state_alone(subject: Subject, seed: int) -> None:
    """Among it torch's random state: draws are a function of the request's seed."""
    before = describe_program()
    for spec in CATALOGUE.values():
        for case in list(host_cases(spec, "float32", seed))[-1:]:
            expected(spec, case.arguments)
            computed(subject, spec, case.arguments)
    assert describe_program() == before


# --- the queue -------------------------------------------------------------------------------------------------------


@pytest.mark.level("smoke")
def test_functions_run_in_the_order_of_submission(queue: Queue) -> None:
    ran: list[int] = []
    events = [queue.submit(partial(ran.append, n)) for n in range(200)]
    events[-1].wait()
    assert ran == list(range(200))
    assert all(event.done() for event in events)


@pytest.mark.level("smoke")
def test_submit_returns_before_the_function_ends(queue: Queue) -> None:
    """Without this the host plans nothing while the device works."""
    gate = threading.Event()
    event = queue.submit(lambda: gate.wait(IMPATIENCE))
    early = event.done()
    gate.set()
    assert event.wait(), "the function ran inside submit, and waited there for what could only come later"
    assert not early
    assert event.done()


def test_an_event_gives_the_functions_value_as_often_as_it_is_asked(queue: Queue) -> None:
    value = object()
    event = queue.submit(lambda: value)
    assert event.wait() is value
    assert event.wait() is value


class Broken(Exception):
    """What a function raises in the tests below."""


def test_an_exception_is_kept_for_whoever_waits_and_the_queue_goes_on(queue: Queue) -> None:
    def fail() -> None:
        raise Broken("on purpose")

    failed, after = queue.submit(fail), queue.submit(lambda: 5)
    assert after.wait() == 5
    assert failed.done()
    for _ in range(2):
        with pytest.raises(Broken, match="on purpose"):
            failed.wait()


def test_several_threads_can_wait_for_one_event(queue: Queue) -> None:
    gate, found = threading.Event(), []
    event = queue.submit(lambda: gate.wait(PATIENCE))
    threads = [threading.Thread(target=lambda: found.append(event.wait())) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == [True] * 4


def test_two_queues_do_not_wait_for_each_other(subject: Subject, queue: Queue) -> None:
    other, gate = subject.device.queue(), threading.Event()
    try:
        held = queue.submit(lambda: gate.wait(PATIENCE))
        assert other.submit(lambda: 7).wait() == 7
        assert not held.done()
        gate.set()
        assert held.wait()
    finally:
        gate.set()
        other.close()


def test_a_function_can_wait_for_another_queues_event(subject: Subject, queue: Queue) -> None:
    other = subject.device.queue()
    try:
        first = other.submit(lambda: 3)
        assert queue.submit(lambda: first.wait() + 1).wait() == 4
    finally:
        other.close()


def test_closing_finishes_what_was_submitted_and_refuses_more(subject: Subject) -> None:
    closing, gate, ran = subject.device.queue(), threading.Event(), []
    closing.submit(lambda: gate.wait(PATIENCE))
    last = closing.submit(lambda: ran.append(1))
    gate.set()
    closing.close()
    assert last.done()
    assert ran == [1]
    with pytest.raises((DeepInferError, RuntimeError)):
        closing.submit(lambda: None)


@pytest.mark.level("smoke")
def test_what_one_function_computes_the_next_one_and_the_host_see(subject: Subject, queue: Queue) -> None:
    x = torch.zeros(4097, device=subject.torch_device)
    steps: list[Event[object]] = [queue.submit(lambda: x.add_(1)) for _ in range(60)]
    doubled = queue.submit(lambda: x * 2)
    assert doubled.wait().cpu().eq(120).all()
    assert all(step.done() for step in steps)
    assert x.cpu().eq(60).all()


def test_two_queues_compute_side_by_side_what_each_computes_alone(subject: Subject, queue: Queue, seed: int) -> None:
    other = subject.device.queue()
    try:
        for name in ("linear", "rms_norm", "sparse_attention", "sample_tokens"):
            spec, kernel = CATALOGUE[name], getattr(subject.ops, name)
            case = list(host_cases(spec, "float32", seed))[-1]
            there = map_tensors(case.arguments, lambda x: x.to(subject.torch_device))
            call: Callable[[], Tensor] = partial(kernel, **there)
            events = [one.submit(call) for _ in range(8) for one in (queue, other)]
            wanted = expected(spec, case.arguments)
            for event in events:
                assert not elementwise([event.wait().cpu()], wanted, spec.tolerances["float32"]), name
    finally:
        other.close()
