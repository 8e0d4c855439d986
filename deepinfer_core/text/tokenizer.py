"""A checkpoint's own tokenizer, read from its tokenizer.json. Incremental decoding is in `text/detokenize.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.api.errors import CheckpointError, PromptTooLong, RequestError

if TYPE_CHECKING:
    import tokenizers

FILE_NAME = "tokenizer.json"
MAX_TOKEN_ID = (1 << 24) - 1


class Tokenizer:
    """Text to token ids and back, exactly as the family's tokenizer defines them; nothing is added or cut off."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        added = inner.get_added_tokens_decoder()
        self.added = {entry.content: token for token, entry in added.items()}
        self.special_ids = frozenset(token for token, entry in added.items() if entry.special)
        described = json.loads(inner.to_str())
        self.byte_level = _is_byte_level(described.get("decoder"))
        self._keeps_text = self.byte_level and _keeps_text(described)
        self._bytes: dict[int, bytes] = {}  # token_bytes, remembered: never more than the vocabulary

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer | None:
        """The tokenizer of a model folder, or None when it has no tokenizer.json."""
        path = folder / FILE_NAME
        if not path.is_file():
            return None
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        return cls.from_json(text, str(path))

    @classmethod
    def from_json(cls, text: str, origin: str = FILE_NAME) -> Tokenizer:
        """Raises `CheckpointError` naming `origin` when `text` is not a tokenizer description."""
        import tokenizers

        try:
            _check_ids(json.loads(text), origin)
            inner = tokenizers.Tokenizer.from_str(text)
        except CheckpointError:
            raise
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{origin} is not a tokenizer that can be read: {error}") from error
        return cls(inner)

    def to_json(self) -> str:
        return self._inner.to_str()

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`. The spelling of a special token in it becomes that token."""
        if (position := lone_surrogate(text)) is not None:
            raise RequestError(f"the text holds half of a surrogate pair at character {position}: it is no character")
        return self._inner.encode(text, add_special_tokens=False).ids

    @cached_property
    def longest_token_bytes(self) -> int | None:
        """The most bytes of a text that one token of `encode` can stand for. None where there is no such bound: the
        tokenizer is not byte-level, or it changes or drops some of the text before it is split."""
        if not self._keeps_text:
            return None
        ordinary = max(map(len, self._inner.get_vocab(with_added_tokens=False)))  # a character for each byte
        return max(ordinary, max((len(text.encode()) for text in self.added), default=0))

    def refuse_hopeless(self, text: str, max_length: int) -> None:
        """Raises `PromptTooLong` when `text` must fill a context of `max_length` tokens, whatever its tokens are. It is
        not encoded for that, which would take seconds for each megabyte."""
        longest = self.longest_token_bytes
        if longest is None:
            return
        size = len(text.encode())
        if size > longest * (max_length - 1):
            raise PromptTooLong(
                f"the prompt has {size} bytes, so {-(-size // longest)} tokens or more, and the context {max_length}, "
                f"one of which the answer needs: shorten it to {max_length - 1} tokens or raise max_length"
            )

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of `ids`. Bytes that are not UTF-8 become U+FFFD; ids without a token give nothing."""
        return self._inner.decode(list(ids), skip_special_tokens=skip_special_tokens)

    @cached_property
    def vocab_size(self) -> int:
        """One more than the highest id, added tokens included."""
        return 1 + max(self._inner.get_vocab(with_added_tokens=True).values(), default=-1)

    def token_id(self, text: str) -> int | None:
        """The id of the token spelt exactly so, None when there is none. Of ordinary tokens, which a byte-level
        vocabulary spells in its own alphabet, ask `encode`."""
        return self._inner.token_to_id(text)

    def token_text(self, token_id: int) -> str:
        """One token's own decoding, special tokens included."""
        return self.decode([token_id], skip_special_tokens=False)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for; empty for an id without a token."""
        known = self._bytes.get(token_id)
        if known is not None:
            return known
        spelling = self._inner.id_to_token(token_id)
        if spelling is None:
            return b""
        found = spelling_to_bytes(spelling) if self.byte_level else self.token_text(token_id).encode()
        self._bytes[token_id] = found
        return found


def lone_surrogate(text: str) -> int | None:
    """Where the first half of a surrogate pair stands in `text`, or None: only then is it UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def spelling_to_bytes(spelling: str) -> bytes:
    """What a byte-level decoder makes of a token: one byte a character, or, where a character stands for no byte (as
    in most special tokens), the spelling's own UTF-8."""
    try:
        return bytes(map(_BYTE_OF.__getitem__, spelling))
    except KeyError:
        return spelling.encode()


def byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: a printable Latin-1 byte is its own character, the n-th other byte is chr(256 + n)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = byte_alphabet()


def _check_ids(described: Any, origin: str) -> None:
    """Refuse absurd ids beforehand: the library takes memory for all ids below, and ends the process when it cannot."""
    match described:
        case {"model": {"vocab": dict(vocab)}}:
            highest = max((token for token in vocab.values() if isinstance(token, int)), default=0)
            if highest > MAX_TOKEN_ID:
                raise CheckpointError(f"{origin} has a token of id {highest}: ids to {MAX_TOKEN_ID} can be held")


def _is_byte_level(decoder: Any) -> bool:
    """Whether a tokenizer.json's decoder is byte-level and nothing else."""
    if not isinstance(decoder, dict):
        return False
    if decoder.get("type") == "Sequence":
        parts = decoder.get("decoders", [])
        return len(parts) == 1 and _is_byte_level(parts[0])
    return decoder.get("type") == "ByteLevel"


def _keeps_text(described: Any) -> bool:
    """Whether a byte-level tokenizer.json turns every byte of a text into some token: nothing normalises or drops any,
    and there is a token for each byte."""
    model = described["model"]
    return (
        described.get("normalizer") is None
        and model.get("type") == "BPE"
        and not model.get("continuing_subword_prefix")
        and not model.get("end_of_word_suffix")
        and _BYTE_OF.keys() <= model["vocab"].keys()
        and _byte_splits(described.get("pre_tokenizer")) == 1
        and not any(added["lstrip"] or added["rstrip"] for added in described["added_tokens"])
    )


def _byte_splits(pre_tokenizer: Any) -> int:
    """How often it turns bytes into characters; -1 or less when some part of it is not known to keep all text."""
    match pre_tokenizer:
        case {"type": "ByteLevel"}:
            return 1
        case {"type": "Digits"}:
            return 0
        case {"type": "Split", "behavior": behavior}:
            return 0 if behavior != "Removed" else -1
        case {"type": "Sequence", "pretokenizers": parts}:
            counts = [_byte_splits(part) for part in parts]
            return -1 if min(counts, default=0) < 0 else sum(counts)
    return -1
