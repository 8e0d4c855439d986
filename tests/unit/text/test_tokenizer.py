"""The checkpoint's tokenizer: nothing added, nothing cut, bytes kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_tokenizers import SPECIAL, added_token, byte_level, byte_level_json

from deepinfer_core.api.errors import CheckpointError, PromptTooLong, RequestError
from deepinfer_core.text.tokenizer import Tokenizer, byte_alphabet, lone_surrogate

text = st.text(st.characters(exclude_categories=["Cs"]))


def test_a_folder_without_the_file_has_no_tokenizer(tmp_path):
    assert Tokenizer.from_folder(tmp_path) is None


def test_a_folder_gives_its_own_tokenizer(tmp_path, tokenizer):
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    assert Tokenizer.from_folder(tmp_path).encode("hello") == tokenizer.encode("hello")


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="tokenizer.json is not a tokenizer"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"", b"null", b"[]", b"{}", b"\xef\xbb\xbf{}", b'{"model": {"vocab": 1}}']
)
def test_what_is_no_tokenizer_is_named(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="tokenizer.json"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("token", [1 << 24, 1 << 31, 4_000_000_000, 10**30])
def test_an_absurd_id_is_refused_before_memory_is_taken_for_it(tokenizer, token):
    described = json.loads(tokenizer.to_json())
    described["model"]["vocab"]["absurd"] = token
    with pytest.raises(CheckpointError, match=f"has a token of id {token}"):
        Tokenizer.from_json(json.dumps(described))


def test_the_alphabet_has_every_byte_once():
    assert sorted(byte_alphabet().values()) == list(range(256))


@given(text)
def test_text_comes_back(tokenizer, value):
    assert tokenizer.decode(tokenizer.encode(value), skip_special_tokens=False) == value


@given(text)
def test_the_bytes_of_the_tokens_are_the_bytes_of_the_text(tokenizer, value):
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(value))) == value.encode()


def test_nothing_is_added(tokenizer):
    assert tokenizer.encode("a") == [ord("a")]
    assert tokenizer.encode("") == []


def test_a_special_token_in_the_text_is_that_token(tokenizer):
    assert tokenizer.encode("<think>") == [tokenizer.token_id("<think>")]


def test_special_tokens_are_left_out_of_the_text_when_asked(tokenizer):
    ids = tokenizer.encode("a<think>b")
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "a<think>b"


def test_only_special_tokens_are_special(tokenizer):
    assert tokenizer.special_ids == {tokenizer.token_id(spelling) for spelling in SPECIAL}
    assert tokenizer.token_id("plain") not in tokenizer.special_ids


def test_an_unknown_spelling_has_no_id(tokenizer):
    assert tokenizer.token_id("no such token") is None


def test_vocab_size_is_one_more_than_the_highest_id():
    described = json.loads(byte_level_json(special=()))
    described["added_tokens"] = [added_token(700, "<far>")]
    described["model"]["vocab"]["<far>"] = 700
    assert Tokenizer.from_json(json.dumps(described)).vocab_size == 701


def test_an_id_without_a_token_is_nothing(tokenizer):
    assert tokenizer.token_bytes(100_000) == b""
    assert tokenizer.token_text(100_000) == ""


def test_a_token_that_is_part_of_a_character(tokenizer):
    assert tokenizer.token_text(0xE4) == "\ufffd"
    assert tokenizer.token_bytes(0xE4) == b"\xe4"


def test_truncation_and_padding_of_the_file_are_not_applied():
    described = json.loads(byte_level_json())
    described["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    padding = {"direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "!"}
    described["padding"] = {"strategy": {"Fixed": 9}, **padding}
    assert Tokenizer.from_json(json.dumps(described)).encode("abcd") == list(b"abcd")


@given(st.lists(text | st.sampled_from([*SPECIAL, "plain", "abababab", "ä½", "é ü"]), max_size=6).map("".join))
def test_no_text_has_fewer_tokens_than_its_bytes_allow(tokenizer, odd_tokenizer, value):
    for one in (tokenizer, odd_tokenizer):
        assert one.longest_token_bytes is not None
        assert len(value.encode()) <= one.longest_token_bytes * len(one.encode(value))


def test_the_longest_token_is_counted_in_bytes_of_text():
    assert byte_level(special=()).longest_token_bytes == 1
    assert byte_level(special=(), merges=[("a", "b"), ("ab", "ab")]).longest_token_bytes == 4
    assert byte_level(special=("<｜>",)).longest_token_bytes == 5
    assert byte_level(special=(), merges=[("Ġ", "Ġ")]).longest_token_bytes == 2


def described(**parts):
    return {**json.loads(byte_level_json()), **parts}


def byte_splits(*before):
    bytes_last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [*before, bytes_last]}


def split(behavior):
    return {"type": "Split", "pattern": {"String": " "}, "behavior": behavior, "invert": False}


def without(byte):
    model = json.loads(byte_level_json())["model"]
    return {**model, "vocab": {name: token for name, token in model["vocab"].items() if token != byte}}


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "NFC"}},
        {"pre_tokenizer": byte_splits(split("Removed"))},
        {"pre_tokenizer": byte_splits({"type": "Whitespace"})},
        {"pre_tokenizer": None},
        {"added_tokens": [{**added_token(256, "<greedy>"), "rstrip": True}]},
        {"model": without(200)},
    ],
    ids=["normalised", "removed", "whitespace", "no bytes", "stripping token", "byte without token"],
)
def test_a_tokenizer_that_may_lose_text_sets_no_bound(parts):
    made = Tokenizer.from_json(json.dumps(described(**parts)))
    assert made.longest_token_bytes is None
    made.refuse_hopeless("a" * 1000, 2)


@pytest.mark.parametrize("before", [(), (split("Isolated"),), ({"type": "Digits", "individual_digits": True},)])
def test_splits_that_keep_all_text_set_a_bound(before):
    made = Tokenizer.from_json(json.dumps(described(pre_tokenizer=byte_splits(*before))))
    assert made.longest_token_bytes == max(len(spelling.encode()) for spelling in SPECIAL)


def test_another_kind_of_tokenizer_sets_no_bound(word_tokenizer):
    assert word_tokenizer.longest_token_bytes is None


@pytest.mark.parametrize(("size", "max_length"), [(9, 10), (10, 10), (18, 10), (19, 10), (40, 21)])
def test_a_text_is_refused_unread_exactly_where_its_bytes_must_fill_the_context(monkeypatch, size, max_length):
    made = byte_level(special=(), merges=[("a", "a")])
    assert made.longest_token_bytes == 2
    monkeypatch.setattr(Tokenizer, "encode", None)
    if size > 2 * (max_length - 1):
        with pytest.raises(
            PromptTooLong, match=f"has {size} bytes, so {-(-size // 2)} tokens or more, and the context"
        ):
            made.refuse_hopeless("a" * size, max_length)
    else:
        made.refuse_hopeless("a" * size, max_length)


def test_half_a_character_is_a_request_error(tokenizer):
    with pytest.raises(RequestError, match="at character 2"):
        tokenizer.encode("ab\ud83d")


def test_a_pair_of_surrogate_escapes_is_a_character():
    assert lone_surrogate(json.loads('"\\ud83d\\ude00"')) is None


def test_another_kind_of_tokenizer_is_not_byte_level(word_tokenizer):
    assert not word_tokenizer.byte_level
    assert word_tokenizer.token_bytes(3) == b"c"
