"""Tokenizers made on the spot."""

import made_tokenizers
import pytest


@pytest.fixture(scope="session")
def tokenizer():
    """Byte-level, with the family's special tokens."""
    return made_tokenizers.byte_level(merges=[("a", "b"), ("Ã", "¤")], ordinary=["plain"])


@pytest.fixture(scope="session")
def odd_tokenizer():
    """With added tokens whose spellings a byte-level decoder reads as bytes, in whole or in part."""
    return made_tokenizers.byte_level(ordinary=["plain", "Ġodd", "é ü", "Ä", "ä½"])


@pytest.fixture(scope="session")
def bare_tokenizer():
    """Byte-level, without one special token."""
    return made_tokenizers.byte_level(special=())


@pytest.fixture(scope="session")
def word_tokenizer():
    """Words behind a metaspace, with byte fallback: what an id decodes to hangs on its neighbours."""
    return made_tokenizers.metaspace()
