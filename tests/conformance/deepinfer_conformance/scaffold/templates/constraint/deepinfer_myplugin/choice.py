"""The constraint: compiles {"myplugin": ["yes", "no"]} and follows answers through it, byte by byte.

The contract is deepinfer_core/interfaces/constraint.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from deepinfer_core.api.errors import GenerationError, RequestError, shown
from numpy.typing import NDArray

if TYPE_CHECKING:
    from deepinfer_core.text.tokenizer import Tokenizer


class MyPluginChoice:
    """The registered engine. It keeps nothing, so one serves every request."""

    def compile(self, kind: str, spec: Any, tokenizer: Tokenizer, eos_token_ids: Sequence[int]) -> MyPluginCompiled:
        """Raises `RequestError` for what is no list of texts, and for a text that this tokenizer cannot spell."""
        if not isinstance(spec, (list, tuple)) or not spec or not all(isinstance(one, str) and one for one in spec):
            raise RequestError(f"constraint {kind} = {shown(spec)} is not allowed: give a list of texts, none empty")
        tokens = _tokens_by_bytes(tokenizer)
        for text in spec:
            for byte in text.encode():
                if bytes([byte]) not in tokens:  # with a token for every byte, no beginning is a dead end
                    raise RequestError(f"constraint {kind}: the model has no token for byte {byte} of {shown(text)}")
        return MyPluginCompiled([text.encode() for text in spec], tokens, tokenizer, eos_token_ids)


class MyPluginCompiled:
    """The texts of one request, and what may follow each of their beginnings."""

    def __init__(
        self,
        texts: Sequence[bytes],
        tokens: Mapping[bytes, Sequence[int]],
        tokenizer: Tokenizer,
        eos_token_ids: Sequence[int],
    ) -> None:
        self._texts = texts
        self._tokens = tokens
        self._end_tokens = eos_token_ids
        self._longest = max(map(len, tokens))
        self.token_bytes = tokenizer.token_bytes

    def matcher(self) -> MyPluginMatcher:
        return MyPluginMatcher(self)

    def is_beginning(self, written: bytes) -> bool:
        return any(text.startswith(written) for text in self._texts)

    def is_finished(self, written: bytes) -> bool:
        """True for a text that no other goes on from."""
        return written in self._texts and not self._rests(written)

    def next_tokens(self, written: bytes) -> list[int]:
        """The tokens that may follow; those that end an answer where it is a whole text."""
        pieces = {rest[:size] for rest in self._rests(written) for size in range(1, min(len(rest), self._longest) + 1)}
        ends = self._end_tokens if written in self._texts else ()
        return [*ends, *(token for piece in pieces for token in self._tokens.get(piece, ()))]

    def _rests(self, written: bytes) -> list[bytes]:
        longer = (text for text in self._texts if text.startswith(written) and text != written)
        return [text[len(written) :] for text in longer]


class MyPluginMatcher:
    """What one answer has written so far."""

    def __init__(self, compiled: MyPluginCompiled) -> None:
        self._compiled = compiled
        self._taken: list[bytes] = []  # the bytes of each committed token

    def mask(self, drafts: Sequence[int], out: NDArray[np.int32]) -> None:
        written = b"".join(self._taken)
        for row in range(1 + len(drafts)):
            out[row] = _bits(self._compiled.next_tokens(written), out.shape[1])
            if row < len(drafts):  # after a draft that is not allowed, nothing is
                written += self._compiled.token_bytes(drafts[row])

    def advance(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            piece = self._compiled.token_bytes(token)
            if not piece or not self._compiled.is_beginning(b"".join([*self._taken, piece])):
                raise GenerationError(f"token {token} leads to none of the texts that were asked for")
            self._taken.append(piece)

    def rollback(self, count: int) -> None:
        del self._taken[len(self._taken) - count :]

    @property
    def finished(self) -> bool:
        return self._compiled.is_finished(b"".join(self._taken))


def _tokens_by_bytes(tokenizer: Tokenizer) -> dict[bytes, list[int]]:
    """The ordinary tokens, by the bytes that they stand for."""
    found: dict[bytes, list[int]] = {}
    for token in range(tokenizer.vocab_size):
        piece = tokenizer.token_bytes(token)
        if piece and token not in tokenizer.special_ids:
            found.setdefault(piece, []).append(token)
    return found


def _bits(tokens: Sequence[int], words: int) -> NDArray[np.int32]:
    """int32 [words]: bit v & 31 of word v >> 5 is 1 for each of the tokens."""
    allowed = np.zeros(words * 32, dtype=np.bool_)
    allowed[list(tokens)] = True
    return np.packbits(allowed, bitorder="little").view("<i4")
