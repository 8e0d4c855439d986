"""Strict JSON lines, in and out."""

import hashlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.errors import RequestError
from deepinfer_core.batchio.jsonl import decode_object, encode_line, read_lines, refuse_surrogates

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
any_text = st.text(st.characters())  # half surrogate pairs too


def lines(data, limit=1000):
    return list(read_lines(io.BytesIO(data), hashlib.sha256(), limit))


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_an_object_comes_back(value):
    assert decode_object(encode_line(value)) == value


@given(st.dictionaries(any_text, any_text, max_size=4))
def test_a_line_is_one_line_and_utf8_whatever_is_in_it(value):
    line = encode_line(value)
    assert line.endswith(b"\n")
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line) == value


def test_text_of_all_scripts_stays_readable():
    assert encode_line({"a": "你好"}).decode() == '{"a":"你好"}\n'


def test_numbers_that_are_none_are_never_written():
    with pytest.raises(ValueError, match="JSON compliant"):
        encode_line({"a": float("nan")})


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"null", "holds null"),
        (b"[1]", "holds a list"),
        (b'"x"', "holds a string"),
        (b"3", "holds a number"),
        (b"true", "holds true or false"),
        (b"{", "not JSON"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": -Infinity}', "-Infinity is no JSON number"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b'{"a": 1, "b": 2, "a": 1}', "'a' is given twice"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "not JSON"),
    ],
)
def test_what_is_no_strict_object_is_refused(raw, said):
    with pytest.raises(RequestError, match=said):
        decode_object(raw)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"a": {"b": ["ok", "x\\ud83d"]}}', r"a\.b\[1\] holds half of a surrogate pair at character 1"),
        (b'{"a": {"\\udc00": 1}}', "a key of a holds half"),
    ],
)
def test_half_a_surrogate_pair_is_refused(raw, said):
    with pytest.raises(RequestError, match=said):
        refuse_surrogates(raw, decode_object(raw))


def test_a_key_given_twice_among_many_is_found_at_once():
    """Comparing all with all would take minutes for these, in which nobody is answered."""
    keys = [f'"k{index}": 0' for index in range(100_000)]
    with pytest.raises(RequestError, match="'k99999' is given twice"):
        decode_object(f"{{{', '.join([*keys, keys[-1]])}}}".encode())


def test_a_whole_surrogate_pair_is_a_character():
    raw = b'{"a": "\\ud83d\\ude00"}'
    refuse_surrogates(raw, decode_object(raw))
    assert decode_object(raw) == {"a": "😀"}


def test_custom_id_may_hold_anything():
    raw = b'{"custom_id": "\\ud83d"}'
    refuse_surrogates(raw, decode_object(raw))
    assert decode_object(raw) == {"custom_id": "\ud83d"}


def test_blank_lines_count_but_are_not_given():
    assert lines(b"\n a \n\t\r\n\nb") == [(2, b"a"), (5, b"b")]


def test_line_ends_of_other_systems_and_a_byte_order_mark():
    assert lines(b"\xef\xbb\xbfa\r\nb\r\n") == [(1, b"a"), (2, b"b")]


def test_only_a_newline_ends_a_line():
    assert lines("a\u2028b\x0bc\x85d".encode()) == [(1, "a\u2028b\x0bc\x85d".encode())]


def test_a_line_that_is_too_long_is_passed_over():
    assert lines(b"abc\n" + b"x" * 50 + b"\nabc\n", limit=4) == [(1, b"abc"), (2, None), (3, b"abc")]


def test_the_limit_is_of_the_line_alone():
    assert lines(b"abcd\nabcde\nabcd", limit=4) == [(1, b"abcd"), (2, None), (3, b"abcd")]


@given(st.binary(max_size=60), st.integers(1, 9))
def test_every_byte_is_hashed(data, limit):
    digest = hashlib.sha256()
    list(read_lines(io.BytesIO(data), digest, limit))
    assert digest.digest() == hashlib.sha256(data).digest()


@given(st.lists(st.binary(max_size=8), max_size=8), st.integers(1, 9))
def test_every_line_is_given_or_blank(parts, limit):
    raw = b"\n".join(parts).split(b"\n")
    expected = [
        (number, None if len(line) > limit else line.strip())
        for number, line in enumerate(raw, 1)
        if len(line) > limit or line.strip()
    ]
    assert lines(b"\n".join(raw), limit) == [pair for pair in expected if pair != (1, b"\xef\xbb\xbf")]
