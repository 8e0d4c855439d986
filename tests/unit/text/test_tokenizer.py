"""The checkpoint's tokenizer: nothing added, nothing cut, bytes kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_tokenizers import SPECIAL, added_token, byte_level_json

from deepinfer_core.api.errors import CheckpointError, RequestError
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


def test_half_a_character_is_a_request_error(tokenizer):
    with pytest.raises(RequestError, match="at character 2"):
        tokenizer.encode("ab\ud83d")


def test_a_pair_of_surrogate_escapes_is_a_character():
    assert lone_surrogate(json.loads('"\\ud83d\\ude00"')) is None


def test_another_kind_of_tokenizer_is_not_byte_level(word_tokenizer):
    assert not word_tokenizer.byte_level
    assert word_tokenizer.token_bytes(3) == b"c"
