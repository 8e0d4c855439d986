"""The text of an answer while it is written, in pieces that no later token can change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.text.detokenize import Detokenizer

if TYPE_CHECKING:
    from deepinfer_core.api.params import SamplingParams
    from deepinfer_core.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Piece:
    """More text of answer `index` of the request `key`. An answer's pieces, joined, are its text."""

    key: int
    index: int
    text: str


class TextFeed:
    """One answer's tokens in, the text that has become final out.

    As many characters as an unfinished stop string may have are held back: a stop string cuts the text where it begins.
    """

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams) -> None:
        self._detokenizer = Detokenizer(tokenizer, params.skip_special_tokens)
        self._reach = max(map(len, params.stop), default=1) - 1
        self._held = ""
        self._given = 0

    def push(self, ids: Sequence[int]) -> str:
        """Take tokens that have not ended the answer."""
        self._held += self._detokenizer.push(ids)
        final = max(0, len(self._held) - self._reach)
        piece, self._held = self._held[:final], self._held[final:]
        self._given += final
        return piece

    def finish(self, text: str) -> str:
        """The rest, `text` being the whole answer."""
        assert self._given <= len(text), "text was given out that the answer does not have"
        return text[self._given :]
