"""The law of incremental detokenisation: the parts joined are the one-shot decoding, for every id sequence."""

from hypothesis import given
from hypothesis import strategies as st
from made_tokenizers import byte_level_json

from deepinfer_core.text.detokenize import Detokenizer
from deepinfer_core.text.tokenizer import Tokenizer

ids = st.lists(st.one_of(st.integers(0, 280), st.integers(0x80, 0xFF), st.just(100_000)), max_size=40)
many_ids = st.lists(ids, max_size=6)
utf8_ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(lambda text: list(text.encode()))


def in_parts(tokenizer, parts, skip_special_tokens):
    detokenizer = Detokenizer(tokenizer, skip_special_tokens)
    return "".join(map(detokenizer.push, parts)) + detokenizer.finish()


def assert_law(tokenizer, parts, skip_special_tokens):
    flat = [token for part in parts for token in part]
    assert in_parts(tokenizer, parts, skip_special_tokens) == tokenizer.decode(flat, skip_special_tokens)


@given(many_ids, st.booleans())
def test_random_ids(odd_tokenizer, parts, skip_special_tokens):
    assert_law(odd_tokenizer, parts, skip_special_tokens)


@given(utf8_ids, ids, utf8_ids, st.booleans())
def test_random_text_broken_by_random_ids(odd_tokenizer, before, middle, after, skip_special_tokens):
    assert_law(odd_tokenizer, [[token] for token in before + middle + after], skip_special_tokens)


@given(many_ids, st.booleans())
def test_another_kind_of_tokenizer(word_tokenizer, parts, skip_special_tokens):
    assert_law(word_tokenizer, parts, skip_special_tokens)


def test_a_character_of_several_tokens_comes_whole(tokenizer):
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.push([byte]) for byte in "😀".encode()] == ["", "", "", "😀"]


def test_an_answer_that_ends_within_a_character(tokenizer):
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.push("é".encode()[:1]) == ""
    assert detokenizer.finish() == "\ufffd"


def test_a_real_replacement_character_does_not_wait(tokenizer):
    assert Detokenizer(tokenizer).push(list("\ufffd".encode())) == "\ufffd"


def test_a_skipped_special_token_does_not_break_a_character(tokenizer):
    first, *rest = "你".encode()
    special = tokenizer.token_id("<think>")
    assert_law(tokenizer, [[first], [special], rest], True)
    assert_law(tokenizer, [[first], [special], rest], False)


def test_endless_continuation_bytes_are_not_held_back(tokenizer):
    detokenizer = Detokenizer(tokenizer)
    assert all(detokenizer.push([0x80]) == "\ufffd" for _ in range(2000))
    assert detokenizer.finish() == ""


def test_each_id_is_decoded_once(monkeypatch):
    """Linear time: the work for an id does not grow with what came before it."""
    asked = []
    tokenizer = Tokenizer.from_json(byte_level_json())
    bytes_of = tokenizer.token_bytes
    monkeypatch.setattr(tokenizer, "token_bytes", lambda token: asked.append(token) or bytes_of(token))
    monkeypatch.setattr(tokenizer, "decode", None)
    assert in_parts(tokenizer, [[0x80]] * 500, True) == "\ufffd" * 500
    assert len(asked) == 500
