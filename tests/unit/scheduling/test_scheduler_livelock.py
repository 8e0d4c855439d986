"""Any crowd on a pool that hardly holds one of it: all end, and preemptions are paid for by what answers have grown."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_driver import Driver, limits

from deepinfer_core.interfaces.scheduler import PrefixRules

MAX_LENGTH = 32
TOKENS = st.lists(st.sampled_from([1, 1, 1, 1, 1, 2]), min_size=1, max_size=12)
RULES = st.builds(PrefixRules, *(st.integers(0, 3) for _ in range(4)))


@st.composite
def crowds(draw: st.DrawFn) -> Driver:
    """Requests whose prompts often begin alike; the largest takes between two thirds and all of the blocks."""
    size = draw(st.integers(1, 4), label="block_size")
    requests = draw(st.lists(st.tuples(TOKENS, st.integers(0, 20)), min_size=2, max_size=7))
    largest = max(-(-(len(prompt) + new) // size) for prompt, new in requests)
    one = Driver(
        limits(
            max_slots=draw(st.integers(2, 8)),
            num_blocks=draw(st.integers(largest, largest * 3 // 2)),
            block_size=size,
            max_step_tokens=draw(st.integers(1, 16)),
            max_length=MAX_LENGTH,
            max_drafts=draw(st.sampled_from([0, 0, 1, 3, 5])),
            prefix=draw(RULES),
        )
    )
    for prompt, new in requests:
        one.add(prompt, new, salt=draw(st.integers(0, 1)), decoder_start=draw(st.integers(0, len(prompt) - 1)))
    return one


def grown(one: Driver) -> int:
    """The blocks that answers begin, beyond those of their prompts."""
    size = one.limits.block_size
    lengths = ((len(request.prompt), request.max_new_tokens) for request in one.requests.values())
    return sum(-(-(prompt + new) // size) + -prompt // size for prompt, new in lengths)


@settings(max_examples=4 * settings.default.max_examples)
@given(one=crowds(), depth=st.integers(0, 2))
def test_preemptions_are_fewer_than_the_blocks_that_answers_begin(one: Driver, depth: int) -> None:
    """Nobody gives way but to an older request, or itself, that begins its next block, and whoever comes back has all
    that it had said: blocks are begun again only for tokens in flight. The oldest never gives way."""
    one.drain(depth)
    assert one.scheduler.stats().preemptions <= grown(one)
    assert 0 not in one.preempted
