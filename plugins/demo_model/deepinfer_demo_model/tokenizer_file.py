"""A tokenizer.json in the family's manner: special tokens, then byte-level BPE, then placeholders up to the vocabulary.

The merges are learnt from the text beside this file. Ids are small here; the spellings are the family's own.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from deepinfer_core.models.deepseek_v41.engram_map import token_key
from deepinfer_demo_model.spec import BOS, EOS, IMAGE, NOISE, PAD

MERGES = 226

# In order of id, from 0. `True`: the token frames a conversation and is left out of decoded text; `False`: it marks a
# part of an answer and stays in.
SPECIAL_TOKENS: tuple[tuple[str, bool], ...] = (
    ("<｜begin▁of▁sentence｜>", True),
    ("<｜end▁of▁sentence｜>", True),
    ("<｜▁pad▁｜>", True),
    ("<｜place▁holder▁no▁0｜>", True),  # what draft stages are fed for tokens not known yet
    ("<｜deepseek_image｜>", True),
    ("<｜System｜>", True),
    ("<｜User｜>", True),
    ("<｜Assistant｜>", True),
    ("<｜latest_reminder｜>", True),
    ("<think>", False),
    ("</think>", False),
    ("｜DSML｜", False),
    ("<｜fim▁hole｜>", False),
    ("<｜fim▁begin｜>", False),
    ("<｜fim▁end｜>", False),
    ("<｜action｜>", False),
    ("<｜query｜>", False),
    ("<｜authority｜>", False),
    ("<｜domain｜>", False),
    ("<｜title｜>", False),
    ("<｜read_url｜>", False),
    ("<｜ref｜>", False),
    ("<｜/ref｜>", False),
    ("<｜box｜>", False),
    ("<｜/box｜>", False),
    ("<｜point｜>", False),
    ("<｜/point｜>", False),
    ("<｜polygon｜>", False),
    ("<｜/polygon｜>", False),
    ("<｜image｜>", True),
)

PRE_TOKENS = (
    r"\p{N}{1,3}",
    "[\u3040-\u30ff\u4e00-\u9fff]+",  # kana and CJK
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)


def build_tokenizer(vocab_size: int) -> Tokenizer:
    """A tokenizer with exactly `vocab_size` ids; the same one every time."""
    tokenizer = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PRE_TOKENS]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken(text, special=hidden, normalized=False) for text, hidden in SPECIAL_TOKENS]
    trainer = trainers.BpeTrainer(
        vocab_size=min(vocab_size, len(specials) + 256 + MERGES),
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = files(__package__).joinpath("tokenizer_text.txt").read_text(encoding="utf-8")
    tokenizer.train_from_iterator([text], trainer)
    unused = range(tokenizer.get_vocab_size(), vocab_size)
    tokenizer.add_special_tokens([f"<｜place▁holder▁no▁{number}｜>" for number, _ in enumerate(unused, start=1)])
    _check(tokenizer, vocab_size)
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json."""
    tokenizer.save(str(folder / "tokenizer.json"))


def token_classes(tokenizer: Tokenizer) -> list[int]:
    """The Engram token map: ids that read alike share a class; classes are numbered by first appearance."""
    numbers: dict[str, int] = {}
    classes = []
    for token in range(tokenizer.get_vocab_size()):
        spelling = tokenizer.id_to_token(token) or ""
        key = token_key(tokenizer.decode([token], skip_special_tokens=False), spelling)
        classes.append(numbers.setdefault(key, len(numbers)))
    return classes


def _check(tokenizer: Tokenizer, vocab_size: int) -> None:
    assert tokenizer.get_vocab_size() == vocab_size, "the text gave fewer merges than there is room for"
    spelt = [SPECIAL_TOKENS[token][0] for token in (BOS, EOS, PAD, NOISE, IMAGE)]
    assert [tokenizer.token_to_id(text) for text in spelt] == [BOS, EOS, PAD, NOISE, IMAGE]
