"""The execution queue: one worker thread keeps the order of submission.

A real device would enqueue on a stream, and an event would be an event recorded on it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from deepinfer_core.api.errors import DeviceError

T = TypeVar("T")


class MyChipQueue:
    """What is submitted runs in order, beside the submitting thread."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mychip")

    def submit(self, fn: Callable[[], T]) -> MyChipEvent[T]:
        try:
            return MyChipEvent(self._worker.submit(fn))
        except RuntimeError as error:  # the pool was shut down
            raise DeviceError("the queue is closed and takes no more work: open the device again") from error

    def close(self) -> None:
        self._worker.shutdown(wait=True)


class MyChipEvent(Generic[T]):
    """The completion of one submitted function."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def wait(self) -> T:
        return self._future.result()
