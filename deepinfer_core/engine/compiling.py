"""Constraints being compiled beside the step loop: other requests keep stepping meanwhile."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.api.errors import DeepInferError, RequestError

if TYPE_CHECKING:
    from deepinfer_core.engine.admission import Admitted
    from deepinfer_core.interfaces.constraint import Compiled

_WORKERS = 2  # so that one slow grammar does not hold up the others


@dataclass(frozen=True, slots=True)
class Waiting:
    """An admitted request whose constraint is not ready."""

    key: int
    admitted: Admitted
    arrived: float  # time.perf_counter()
    future: Future[Compiled]

    def outcome(self) -> Compiled | DeepInferError:
        """The compiled constraint, or why there is none. The future must be done."""
        error = self.future.exception()
        if error is None:
            compiled: Compiled | None = self.future.result()
            if compiled is None:
                return RequestError("the constraint could not be compiled: its plugin gave None")
            return compiled
        if isinstance(error, DeepInferError):
            return error
        wrapped = RequestError(f"the constraint could not be compiled: {type(error).__name__}: {error}")
        wrapped.__cause__ = error
        return wrapped


class ConstraintCompiler:
    """Requests wait here, in order of arrival, until their constraint is compiled."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: dict[int, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, key: int, admitted: Admitted, arrived: float) -> None:
        assert admitted.constraint is not None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="constraint")
        future = self._pool.submit(admitted.constraint.compile)
        self._waiting[key] = Waiting(key, admitted, arrived, future)

    def cancel(self, key: int) -> Waiting | None:
        """Forget a request; a compilation that has begun runs to its own limits."""
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting.future.cancel()
        return waiting

    def ready(self, *, block: bool) -> list[Waiting]:
        """Take out the requests whose compilation has ended; with `block`, wait for the first."""
        if block and self._waiting:
            wait([waiting.future for waiting in self._waiting.values()], return_when=FIRST_COMPLETED)
        done = [waiting for waiting in self._waiting.values() if waiting.future.done()]
        for waiting in done:
            del self._waiting[waiting.key]
        return done

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
