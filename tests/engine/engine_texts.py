"""A byte-level tokenizer of 59 tokens for the fake model, whose head has two rows more: letters, digits, a few pairs,
the four bytes of one emoji, and special tokens."""

from __future__ import annotations

import functools
import string

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from deepinfer_core.text.tokenizer import Tokenizer

BOS, EOS, END, TOOL = 0, 1, 7, 37
EMOJI = (32, 33, 34, 35)
VOCAB = 59

_SPECIAL = {BOS: "<bos>", EOS: "<eos>", END: "<end>", TOOL: "<tool>"}


@functools.cache
def tokenizer() -> Tokenizer:
    letters = iter(string.ascii_lowercase)
    spelling = _byte_spellings()
    names: dict[int, str] = dict(_SPECIAL)
    names |= dict(zip(EMOJI, (spelling[byte] for byte in "😀".encode()), strict=True))
    names |= {29: "ab", 30: "bc", 31: "Ġ", 36: "Ġab"}
    names |= {38 + digit: str(digit) for digit in range(10)}
    names |= dict(zip(range(48, VOCAB), ".,:;!?+-*/=", strict=True))
    for token in range(VOCAB):
        if token not in names:
            names[token] = next(letters)
    bpe = models.BPE(vocab={name: token for token, name in names.items()}, merges=[("a", "b"), ("b", "c"), ("Ġ", "ab")])
    inner = tokenizers.Tokenizer(bpe)
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in _SPECIAL.values()])
    made = Tokenizer.from_json(inner.to_str())
    assert made.vocab_size == VOCAB
    return made


def ids(text: str) -> list[int]:
    return tokenizer().encode(text)


def _byte_spellings() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
