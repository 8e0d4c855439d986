"""The yardsticks of the suite, held to what is known without it."""

from __future__ import annotations

import math
import threading

import pytest
import torch

from deepinfer_conformance.laws.attention import attend, best_blocks, best_entries, tell
from deepinfer_conformance.laws.cache import block_maxima, make_pool
from deepinfer_conformance.laws.moving import moved, same_bits
from deepinfer_conformance.laws.philox_numbers import DRAWS, VOCABULARY
from deepinfer_conformance.laws.rows import HELD, batches
from deepinfer_conformance.laws.sampling import chi_square, chi_square_limit, log_softmax, philox, support
from deepinfer_conformance.laws.watchdog import Hung, Outcome, within
from deepinfer_core.interfaces.ops import RowFormat
from deepinfer_core.ops.cases import MIXED, Segment
from deepinfer_core.ops.catalogue import CATALOGUE

PLAIN = (RowFormat.F32, RowFormat.F32)

# Known answers that the authors of Philox publish with Random123: counter, key, result.
KNOWN = [
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_its_known_answers(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert philox(counter, key) == expected


@pytest.mark.parametrize(("seed", "sample", "position", "token"), DRAWS[::5])
def test_the_stored_draws_are_the_largest_words(seed: int, sample: int, position: int, token: int) -> None:
    key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    words = [word for block in range(VOCABULARY // 4) for word in philox((block, position, 0, sample), key)]
    assert words.index(max(words)) == token


def test_supports_of_small_examples() -> None:
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)] + [-math.inf]
    assert support(logits, 1.0, 0, 1.0, 0.0) == {0, 1, 2, 3}
    assert support(logits, 1.0, 2, 1.0, 0.0) == {0, 1}
    assert support(logits, 1.0, 0, 0.69, 0.0) == {0, 1}
    assert support(logits, 1.0, 0, 0.71, 0.0) == {0, 1, 2}
    assert support(logits, 1.0, 0, 1.0, 0.3) == {0, 1, 2}
    assert support([1.0, 1.0, 1.0], 1.0, 2, 1.0, 0.0) == {0, 1}
    assert support(logits, 0.01, 0, 1.0, 0.3) == {0}


def test_chi_square_tells_a_fair_die_from_a_loaded_one() -> None:
    fair = [1 / 6] * 6
    assert chi_square([1000, 1010, 990, 1005, 995, 1000], fair) < chi_square_limit(5)
    assert chi_square([1000, 1000, 1000, 1000, 800, 1200], fair) > chi_square_limit(5)
    assert chi_square_limit(30, deviations=1.6449) == pytest.approx(43.77, abs=0.05)  # the tabled 95 % point


def test_log_softmax_of_extremes() -> None:
    assert log_softmax([1000.0, 1000.0]) == pytest.approx([-math.log(2)] * 2)
    assert log_softmax([0.0, -math.inf])[1] == -math.inf


def test_entries_and_blocks_of_small_examples() -> None:
    assert best_entries([0.0, 2.0, 2.0, 1.0], 2) == [1, 2]
    assert best_entries([0.0, 2.0, 2.0, 1.0], 1) == [1]
    assert best_entries([0.0, -math.inf], 3) == [0, -1, -1]
    assert best_blocks([0.0, 9.0, 1.0, 1.0, 0.0, -math.inf], 5, 2, 2) == [True, False, True]
    assert best_blocks([-math.inf] * 4, 0, 2, 2) == [False, False]


def test_a_story_is_attended_to_as_it_was_told() -> None:
    """A lone key with a closed sink comes back as it is; an equal sink takes half."""
    story = tell((Segment(0, 0, 1),), PLAIN, 0, seed=1)
    q = torch.zeros(len(story.rows), 2, 64)
    got = attend(story, q, None, torch.tensor([-math.inf, 0.0]), 1.0)[0]
    torch.testing.assert_close(got, torch.stack([story.keys[0][0], story.keys[0][0] / 2]))


def test_a_story_says_what_a_row_may_see() -> None:
    story = tell(MIXED, PLAIN, 2, seed=0)
    assert list(story.seen(0)) == [0, 1, 2, 3, 4, 5]
    assert list(story.seen(22)) == list(range(19, 28))
    assert list(story.seen(26)) == list(range(35, 41))  # the floor
    assert (story.ended(0), story.ended(22), story.ended(26)) == (3, 14, 20)


def test_every_op_is_held_to_the_law_of_rows() -> None:
    """`moe_permute` and `moe_combine` are held together with `experts`."""
    assert sorted([*HELD, "moe_permute", "moe_combine"]) == sorted(CATALOGUE)


def test_rows_are_tried_in_many_batches() -> None:
    made = [index.tolist() for index in batches(7, seed=0)]
    assert [0] in made
    assert [6] in made
    assert list(range(7))[::-1] in made
    assert any(len(index) > 7 for index in made)


def test_bits_are_compared_and_not_numbers() -> None:
    nan, zero = torch.tensor([math.nan]), torch.tensor([0.0])
    assert same_bits(nan, nan.clone())
    assert not same_bits(zero, -zero)
    assert not same_bits(zero, zero.double())
    assert not same_bits((zero, zero), (zero,))


def test_moving_copies_what_is_inside() -> None:
    story = tell(MIXED, PLAIN, 1, seed=0)
    there = moved({"rows": story.rows, "entries": story.entries, "k": 3}, torch.device("cpu"))
    assert torch.equal(there["rows"].slot, story.rows.slot)
    assert there["rows"].slot.data_ptr() != story.rows.slot.data_ptr()
    assert there["k"] == 3


def test_a_pool_tells_which_rows_changed() -> None:
    pool = make_pool(torch.device("cpu"), 4, 5, seed=0)
    assert pool.changed({}) == []
    pool.around[3] ^= 1
    pool.rows[2] ^= 1
    assert pool.changed({}) == [-5, 2]
    assert pool.changed({2: pool.rows[2].clone()}) == [-5]


def test_block_maxima() -> None:
    assert block_maxima(torch.tensor([[1.0, -3.0, 2.0, 0.5]]), 2).tolist() == [[3.0, 3.0, 2.0, 2.0]]


def test_a_watchdog_sees_what_hangs_and_hands_on_what_ends() -> None:
    gate = threading.Event()
    hanging = Outcome(gate.wait)
    assert hanging.pending(0.01)
    with pytest.raises(Hung, match="the gate did not end within 0.01 seconds"):
        hanging.get("the gate", seconds=0.01)
    gate.set()
    assert hanging.get("the gate") is True
    assert within("a sum", lambda: 1 + 1) == 2
    with pytest.raises(ZeroDivisionError):
        within("a fault", lambda: 1 // 0)
