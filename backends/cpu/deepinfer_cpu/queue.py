"""The execution queue of the CPU backend: one worker thread that runs what is submitted, in order."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

from deepinfer_core.api.errors import DeviceError

T = TypeVar("T")

EXIT_PATIENCE = 5.0  # seconds that the interpreter's exit waits for the function in progress


class WorkerEvent(Generic[T]):
    """The completion of one submitted function. The worker writes the outcome once, before it sets `_finished`."""

    __slots__ = ("_error", "_finished", "_value", "_worker")

    def __init__(self, worker: threading.Thread) -> None:
        self._worker = worker
        self._finished = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._finished.is_set()

    def wait(self) -> T:
        if threading.current_thread() is self._worker and not self.done():
            raise DeviceError("a function on the queue waits for a later one of the same queue: neither could ever end")
        self._finished.wait()
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def run(self, fn: Callable[[], T]) -> None:
        """Called by the worker. Whatever `fn` raises, SystemExit included, is kept for `wait`: the worker lives on."""
        try:
            self._value = fn()
        except BaseException as error:
            self._error = error
        self._finished.set()

    def abandon(self) -> None:
        """The function will not run."""
        self._error = DeviceError("the program ended before the queue came to this function")
        self._finished.set()


Jobs = SimpleQueue[tuple[WorkerEvent[Any], Callable[[], Any]] | None]  # None: the worker ends


class WorkerQueue:
    """A `Queue` on a thread of its own. The thread is a daemon: it is stopped when the queue is closed or forgotten."""

    def __init__(self, name: str, start: Callable[[], None]) -> None:
        """`start` has run on the new thread when this returns; what it raises is raised here."""
        self._jobs: Jobs = SimpleQueue()
        self._lock = threading.Lock()  # orders `submit` and `close`
        self._closed = False
        self._worker = threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
        self._worker.start()
        self._finalizer = weakref.finalize(self, _abandon, self._jobs, self._worker)
        self.submit(start).wait()

    def submit(self, fn: Callable[[], T]) -> WorkerEvent[T]:
        event = WorkerEvent[T](self._worker)
        with self._lock:
            if self._closed:
                raise DeviceError("the queue is closed and takes no more work: open the device again")
            self._jobs.put((event, fn))
        return event

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        if threading.current_thread() is not self._worker:
            self._worker.join()
            self._finalizer.detach()


def _work(jobs: Jobs) -> None:
    """Holds no reference to the queue, nor to a function once it has run: tensors must not outlive their users."""
    while (job := jobs.get()) is not None:
        event, fn = job
        event.run(fn)
        del job, event, fn


def _abandon(jobs: Jobs, worker: threading.Thread) -> None:
    """Stop after the function in progress: at exit a running thread would be cut off inside native code."""
    try:
        while (job := jobs.get_nowait()) is not None:
            job[0].abandon()
    except Empty:
        pass
    jobs.put(None)
    if threading.current_thread() is not worker:
        worker.join(EXIT_PATIENCE)
