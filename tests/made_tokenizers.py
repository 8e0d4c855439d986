"""Tokenizers for tests: byte-level ones with the family's special tokens, and one of another kind."""

import json

from deepinfer_core.text.tokenizer import Tokenizer, byte_alphabet

SPECIAL = (
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜System｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
)


def added_token(token, text, special=True):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token, "content": text, "special": special, **flags}


def byte_level_json(special=SPECIAL, ordinary=(), merges=()):
    """One token a byte (bytes 0 to 255 are ids 0 to 255), then merges, special and ordinary added tokens."""
    vocab = byte_alphabet()
    for left, right in merges:
        vocab[left + right] = len(vocab)
    names = [*((text, True) for text in special), *((text, False) for text in ordinary)]
    added = [added_token(len(vocab) + index, text, flag) for index, (text, flag) in enumerate(names)]
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "vocab": vocab, "merges": [list(pair) for pair in merges]},
        }
    )


def byte_level(special=SPECIAL, ordinary=(), merges=()):
    return Tokenizer.from_json(byte_level_json(special, ordinary, merges))


def metaspace():
    words = ["<unk>", "▁a", "▁b", "c", "▁", *(f"<0x{byte:02X}>" for byte in range(256))]
    described = json.loads(byte_level_json(special=()))
    vocab = {word: index for index, word in enumerate(words)}
    described["model"] = {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>", "byte_fallback": True}
    described["pre_tokenizer"] = None
    described["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    return Tokenizer.from_json(json.dumps(described))
