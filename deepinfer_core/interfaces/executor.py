"""The seam for running replicas elsewhere: an executor takes requests and gives outputs as they finish."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from deepinfer_core.api.config import EngineConfig
    from deepinfer_core.api.outputs import RequestOutput
    from deepinfer_core.engine.request import Request


class Executor(Protocol):
    """One or more engine replicas behind one stream of requests."""

    def start(self, config: EngineConfig) -> None: ...

    def run(self, requests: Iterable[Request]) -> Iterator[RequestOutput]:
        """Outputs in order of completion; pulls requests no faster than it finishes them."""

    def close(self) -> None: ...
