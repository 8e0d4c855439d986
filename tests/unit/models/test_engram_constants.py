"""Constants of the n-gram tables and the classes of the tokens."""

import json

import pytest
from made_checkpoints import TINY
from made_tokenizers import byte_level_json

from deepinfer_core.api.errors import CheckpointError
from deepinfer_core.models.deepseek_v41.engram_map import MAP_NAME, TOKENIZER_NAME, load_token_classes, token_key
from deepinfer_core.models.deepseek_v41.engram_tables import hash_constants, table_primes, table_rows


def test_moduli_of_the_released_model():
    first, second = table_primes(tables=2, lengths=3, heads=8, start=16_000_000)
    assert first[:3] == (16_000_057, 16_000_079, 16_000_081)
    assert (first[-1], second[0], second[-1]) == (16_000_463, 16_000_477, 16_000_889)
    assert table_rows(2, 3, 8, 16_000_000) == (384_006_168, 384_016_682)


@pytest.mark.parametrize(
    ("layer", "multipliers"),
    [
        (1, (76632096046245, 4839876093313, 35959672319349, 73987337458391)),
        (14, (67716810739261, 51510806800915, 30921347202721, 82619226485591)),
    ],
)
def test_multipliers_of_the_released_model(layer, multipliers):
    assert hash_constants(layer, (7, 11), ngram=4, classes=99_092).multipliers == multipliers


@pytest.mark.parametrize("classes", [2, 256, 99_092, 2**40])
def test_products_with_a_class_fit_in_64_bits(classes):
    for layer in range(64):
        for multiplier in hash_constants(layer, (7,), ngram=4, classes=classes).multipliers:
            assert multiplier % 2 == 1
            assert (classes - 1) * multiplier < 2**63


def test_offsets_count_the_rows_before():
    assert hash_constants(3, (101, 103, 107), ngram=4, classes=9).offsets == (0, 101, 204)


def test_moduli_are_distinct_primes():
    found = [prime for primes in table_primes(tables=3, lengths=2, heads=4, start=90) for prime in primes]
    assert len(set(found)) == 24
    assert all(all(prime % divisor for divisor in range(2, prime)) for prime in found)
    assert min(found) == 97


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Hello", "hello"),
        (" Hello ", "hello"),
        ("É", "e"),
        ("ﬁ", "fi"),  # one ligature
        ("Ａ", "a"),  # full width
        ("a \t\n b", "a b"),
        (" ", " "),
        ("\n\n", " "),
        ("\u0301", "\u0301"),  # nothing but an accent: nothing would be left
        ("র", "র"),
        ("ের", "র"),  # vowel signs are accents too
        ("\ufffd", "raw"),
        ("a\ufffd", "raw"),
    ],
)
def test_what_tokens_of_a_class_share(text, key):
    assert token_key(text, "raw") == key


def test_the_map_of_the_checkpoint_is_used():
    assert load_token_classes(TINY, 512, 256) == [token // 2 for token in range(512)]


def test_without_a_map_the_tokenizer_gives_the_classes(tmp_path):
    """Bytes that decode to themselves: a and A share a class, as do the line break, the tab and the space."""
    (tmp_path / TOKENIZER_NAME).write_text(byte_level_json(special=["<end>"], merges=[("a", "b"), ("A", "b")]))
    vocab = 256 + 2 + 1
    with pytest.raises(CheckpointError, match="token classes and config.json says engram_compressed_vocab_size = 1"):
        load_token_classes(tmp_path, vocab, 1)
    upper, blanks, others = 26, 3, 1  # classes that A..Z, the blanks after the first, and the pair "Ab" do not add
    classes = load_token_classes(tmp_path, vocab, vocab - upper - blanks - others)
    assert classes[ord("a")] == classes[ord("A")]
    assert classes[ord(" ")] == classes[ord("\n")] == classes[ord("\t")] == classes[ord("\r")]
    assert classes[256] == classes[257] != classes[ord("a")]
    assert classes[0] == 0
    assert len({classes[byte] for byte in range(128, 256)}) == 128


def test_ids_without_a_token_share_one_class(tmp_path):
    (tmp_path / TOKENIZER_NAME).write_text(byte_level_json(special=[]))
    classes = load_token_classes(tmp_path, 260, 256 - 26 - 3 + 1)
    assert len(set(classes[256:])) == 1
    assert classes[256] not in classes[:256]


@pytest.mark.parametrize("content", ["[0, 1]", '{"0": 1}', "[0, 1, -1]", "[0, 1, true]", '[0, 1, "2"]'])
def test_a_map_of_another_shape_is_refused(tmp_path, content):
    (tmp_path / MAP_NAME).write_text(content)
    with pytest.raises(CheckpointError, match="must be a list of 3 classes"):
        load_token_classes(tmp_path, 3, 3)


def test_the_number_of_classes_must_agree(tmp_path):
    (tmp_path / MAP_NAME).write_text(json.dumps([0, 1, 1]))
    assert load_token_classes(tmp_path, 3, 2) == [0, 1, 1]
    with pytest.raises(CheckpointError, match="gives 2 token classes and config.json says"):
        load_token_classes(tmp_path, 3, 3)


def test_a_folder_with_neither_file_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=f"has neither {MAP_NAME} nor {TOKENIZER_NAME}"):
        load_token_classes(tmp_path, 3, 3)


def test_a_broken_tokenizer_is_named(tmp_path):
    (tmp_path / TOKENIZER_NAME).write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer.json cannot be used as a tokenizer"):
        load_token_classes(tmp_path, 3, 3)
