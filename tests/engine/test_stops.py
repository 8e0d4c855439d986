"""Stop strings: the outcome depends on the characters, not on how they arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.engine.stops import StopHit, StopSearch

TEXTS = st.text("abc", max_size=30)
STOPS = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4)


def by_characters(text: str, stops: list[str], from_length: int) -> StopHit | None:
    """The definition: the first prefix longer than `from_length` that ends in a stop, and the longest such stop."""
    for end in range(from_length + 1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return StopHit(longest, end - len(longest), end)
    return None


@given(TEXTS, STOPS, st.data())
def test_the_hit_is_the_first_completed_stop_however_the_text_is_cut(text: str, stops: list[str], data) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    search, hit = StopSearch(stops), None
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found = search.push(text[start:end], counts=True)
        hit = hit or found
    assert hit == by_characters(text, stops, 0)
    assert search.text == text


@given(TEXTS, TEXTS, STOPS)
def test_a_stop_that_ends_before_stops_count_is_none(before: str, after: str, stops: list[str]) -> None:
    search = StopSearch(stops)
    assert search.push(before, counts=False) is None
    assert search.push(after, counts=True) == by_characters(before + after, stops, len(before))


def test_a_stop_may_begin_before_stops_count() -> None:
    search = StopSearch(["abc"])
    search.push("xab", counts=False)
    assert search.push("cd", counts=True) == StopHit("abc", 1, 4)


def test_one_long_text_is_searched_once() -> None:
    """A quadratic search of 200,000 pieces would not end."""
    search = StopSearch(["ab" * 50])
    for _ in range(200_000):
        assert search.push("a", counts=True) is None
    assert len(search.text) == 200_000
