"""Which class each token id falls into for the n-gram memory: read from the checkpoint, or computed from its tokenizer.

Tokens that read alike (case, accents, width, spacing) share a class; classes are numbered by first appearance.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, normalizers

from deepinfer_core.api.errors import CheckpointError
from deepinfer_core.loading.index import read_json

MAP_NAME = "engram_token_map.json"
TOKENIZER_NAME = "tokenizer.json"
UNDECODABLE = "\ufffd"

LONE_SPACE = "\ue000"  # keeps a token that is one space from being stripped
PLAIN = normalizers.Sequence(
    [
        normalizers.NFKC(),
        normalizers.NFD(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
        normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
        normalizers.Replace(Regex(r"^ $"), LONE_SPACE),
        normalizers.Strip(),
        normalizers.Replace(LONE_SPACE, " "),
    ]
)


def load_token_classes(folder: Path, vocab_size: int, num_classes: int) -> list[int]:
    """The class of each id 0 .. vocab_size - 1. Raises `CheckpointError` unless there are exactly `num_classes`."""
    path = folder / MAP_NAME
    if path.is_file():
        classes = _read_map(path, vocab_size)
    else:
        path = folder / TOKENIZER_NAME
        if not path.is_file():
            raise CheckpointError(
                f"{folder} has neither {MAP_NAME} nor {TOKENIZER_NAME}: the n-gram memory needs one of them to know "
                "the classes of the tokens"
            )
        classes = _number(_keys(_load_tokenizer(path), vocab_size))
    found = max(classes) + 1
    if found != num_classes:
        raise CheckpointError(
            f"{path} gives {found} token classes and config.json says engram_compressed_vocab_size = {num_classes}: "
            "the two must come from the same release of the model"
        )
    return classes


def token_key(text: str, raw: str) -> str:
    """What tokens of one class share: `text` is the decoded token, `raw` its entry in the vocabulary."""
    if UNDECODABLE in text:
        return raw
    return str(PLAIN.normalize_str(text)) or text


def _read_map(path: Path, vocab_size: int) -> list[int]:
    classes = read_json(path)
    fine = isinstance(classes, list) and all(type(item) is int and item >= 0 for item in classes)
    if not fine or len(classes) != vocab_size:
        raise CheckpointError(f"{path} must be a list of {vocab_size} classes, one for each token id, counted from 0")
    return list(classes)


def _load_tokenizer(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers library raises bare Exception for any fault in the file
        raise CheckpointError(f"{path} cannot be used as a tokenizer: {error}") from error


def _keys(tokenizer: Tokenizer, vocab_size: int) -> Iterable[str]:
    for token in range(vocab_size):
        yield token_key(tokenizer.decode([token], skip_special_tokens=False), tokenizer.id_to_token(token) or "")


def _number(keys: Iterable[str]) -> list[int]:
    """Each key's number, counted by first appearance."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
