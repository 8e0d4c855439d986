"""Incremental detokenisation: ids in as they come, text out as soon as no later id can change it."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepinfer_core.text.tokenizer import Tokenizer


class Detokenizer:
    """Decodes one answer. What `push` and `finish` return, joined, equals one `decode` of all ids, whatever they are.

    For a byte-level tokenizer each id costs the same however long the answer is, and at most three bytes are held back:
    those of a character that is not complete. What another decoder makes of an id may hang on any id after it, so
    there the whole text comes with `finish`.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._held: list[int] = []

    def push(self, ids: Sequence[int]) -> str:
        """Take more ids; the text that has become final."""
        if not self._tokenizer.byte_level:
            self._held.extend(ids)
            return ""
        token_bytes = self._tokenizer.token_bytes
        return self._utf8.decode(b"".join(token_bytes(token) for token in ids if token not in self._skipped))

    def finish(self) -> str:
        """The rest of the text. Nothing may be pushed afterwards."""
        if not self._tokenizer.byte_level:
            return self._tokenizer.decode(self._held, self._skip_special_tokens)
        return self._utf8.decode(b"", final=True)
