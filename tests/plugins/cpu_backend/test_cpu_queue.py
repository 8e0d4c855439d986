import gc
import subprocess
import sys
import threading
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.errors import DeviceError
from deepinfer_core.interfaces.backend import Event, Queue
from deepinfer_cpu.backend import CpuDevice
from deepinfer_cpu.queue import WorkerQueue

LIMIT = 30  # seconds after which a thread that should have ended counts as stuck


@pytest.fixture
def queue():
    queue = WorkerQueue("test", lambda: None)
    yield queue
    queue.close()


def test_it_is_a_queue_and_gives_events(queue):
    assert isinstance(queue, Queue)
    assert isinstance(queue.submit(lambda: None), Event)


@given(st.lists(st.integers()))
def test_work_runs_in_order_of_submission_and_values_come_back(values):
    queue, ran = WorkerQueue("test", lambda: None), []

    def work(value):
        ran.append(value)
        return value

    events = [queue.submit(lambda value=value: work(value)) for value in values]
    assert [event.wait() for event in events] == values
    queue.close()
    assert ran == values


def test_submitting_returns_while_the_worker_is_busy(queue):
    gate = threading.Event()
    first, second = queue.submit(gate.wait), queue.submit(lambda: "after")
    assert not first.done()
    assert not second.done()
    gate.set()
    assert second.wait() == "after"
    assert first.done()


def test_work_runs_on_another_thread(queue):
    assert queue.submit(threading.get_ident).wait() != threading.get_ident()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, DeviceError])
def test_an_exception_is_kept_for_every_wait_and_later_work_still_runs(queue, error):
    def fail():
        raise error("broken")

    event, after = queue.submit(fail), queue.submit(lambda: 1)
    for _ in range(2):
        with pytest.raises(error, match="broken"):
            event.wait()
    assert event.done()
    assert after.wait() == 1


def test_close_finishes_what_was_submitted_and_then_refuses(queue):
    gate, ran = threading.Event(), []
    queue.submit(gate.wait)
    events = [queue.submit(lambda i=i: ran.append(i)) for i in range(10)]
    closing = threading.Thread(target=queue.close)
    closing.start()
    gate.set()
    closing.join(LIMIT)
    assert ran == list(range(10))
    assert all(event.done() for event in events)
    with pytest.raises(DeviceError, match="closed"):
        queue.submit(lambda: None)
    queue.close()


def test_work_may_close_its_own_queue():
    queue = WorkerQueue("test", lambda: None)
    queue.submit(queue.close).wait()
    with pytest.raises(DeviceError, match="closed"):
        queue.submit(lambda: None)
    queue.close()


def test_waiting_for_a_later_function_from_within_the_queue_is_an_error(queue):
    gate, later = threading.Event(), []

    def wait_for_later():
        gate.wait()
        later[0].wait()

    event = queue.submit(wait_for_later)
    later.append(queue.submit(lambda: None))
    gate.set()
    with pytest.raises(DeviceError, match="waits for a later one"):
        event.wait()


def test_many_threads_may_submit(queue):
    total = []
    threads = [
        threading.Thread(target=lambda: [queue.submit(lambda: total.append(1)) for _ in range(100)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    queue.submit(lambda: None).wait()
    assert len(total) == 800


def test_a_function_is_forgotten_once_it_has_run(queue):
    class Big:
        pass

    big = Big()
    alive = weakref.ref(big)
    queue.submit(lambda big=big: None).wait()
    del big
    queue.submit(lambda: None).wait()
    gc.collect()
    assert alive() is None


def test_a_forgotten_queue_ends_its_thread_and_abandons_what_waits():
    queue, gate, started = WorkerQueue("test", lambda: None), threading.Event(), threading.Event()
    worker = queue._worker
    queue.submit(lambda: (started.set(), gate.wait()))
    never = queue.submit(lambda: None)
    started.wait(LIMIT)
    threading.Thread(target=lambda: (never._finished.wait(LIMIT), gate.set())).start()
    del queue
    gc.collect()
    worker.join(LIMIT)
    assert not worker.is_alive()
    with pytest.raises(DeviceError, match="before the queue came to this function"):
        never.wait()


def test_a_failing_start_is_raised_at_once():
    def start():
        raise OSError("no such thread setting")

    with pytest.raises(OSError, match="no such thread setting"):
        WorkerQueue("test", start)


EXIT_WHILE_BUSY = """
import threading
import deepinfer_cpu.queue as module
module.EXIT_PATIENCE = 0.01
queue = module.WorkerQueue("stuck", lambda: None)
running = threading.Event()
queue.submit(lambda: (running.set(), threading.Event().wait()))
queue.submit(lambda: print("must not run"))
running.wait()
"""


def test_the_interpreter_ends_although_a_function_never_does():
    done = subprocess.run([sys.executable, "-c", EXIT_WHILE_BUSY], capture_output=True, timeout=LIMIT, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_devices_thread_count_holds_on_its_queue_alone():
    default = torch.get_num_threads()
    device = CpuDevice(threads=default + 1)
    queue = device.queue()
    assert queue.submit(torch.get_num_threads).wait() == default + 1
    assert torch.get_num_threads() == default
    queue.submit(lambda: torch.ones(300, 300) @ torch.ones(300, 300)).wait()
    assert queue.submit(torch.get_num_threads).wait() == default + 1
    device.close()
