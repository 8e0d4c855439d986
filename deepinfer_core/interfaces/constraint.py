"""The seam for structured output: a constraint says which tokens may come next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from deepinfer_core.text.tokenizer import Tokenizer


class Matcher(Protocol):
    """The state of one answer under a constraint."""

    def mask(self, drafts: Sequence[int], out: NDArray[np.int32]) -> None:
        """Fill out [1 + len(drafts), ceil(V / 32)]: bit v & 31 of word v >> 5 is 1 where token v may come next, for
        the committed tokens and then after each draft. The state afterwards is as before."""

    def advance(self, tokens: Sequence[int]) -> None:
        """Take committed tokens. Raises `GenerationError` when one is not allowed."""

    def rollback(self, count: int) -> None:
        """Forget the last `count` committed tokens."""

    @property
    def finished(self) -> bool:
        """True when nothing but the end of the answer may follow."""


class Compiled(Protocol):
    """A constraint ready for use; one for any number of answers."""

    def matcher(self) -> Matcher: ...


class ConstraintEngine(Protocol):
    """Registered for the kinds of constraint that it understands (`json_schema`, `regex`, `choice`, ...)."""

    def compile(self, kind: str, spec: Any, tokenizer: Tokenizer, eos_token_ids: Sequence[int]) -> Compiled:
        """Called off the step loop. Raises `RequestError` naming whatever it cannot enforce."""
