"""How many blocks fit, and the errors when none do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.cache.layout import CacheRequest, fit_cache
from deepinfer_core.interfaces.cache import CacheSpec, PagedSpec, RingSpec
from deepinfer_core.interfaces.ops import RowFormat

SPEC = CacheSpec(
    paged=(PagedSpec("latent", RowFormat.FP4_E4M3_16, 64, ratio=2), PagedSpec("index", RowFormat.F32, 8, ratio=2)),
    rings=(
        RingSpec("window", RowFormat.FP8_E8M0_32, 64, rows=20, layers=3, scratch=True),
        RingSpec("pending", RowFormat.F32, 128, rows=6),
    ),
)
BLOCK = 32 * (32 + 4) + 32 * 32
RINGS = (3 * 4 * 20 + 100) * 66 + 4 * 6 * 512
REQUEST = CacheRequest(
    slots=4, block_size=64, step_tokens=100, max_length=1000, cache_tokens=None, memory_share=0.5, free_bytes=1 << 30
)


def test_sizes_are_those_of_the_pools():
    layout = fit_cache(SPEC, replace(REQUEST, cache_tokens=640))
    assert layout.num_blocks == 10
    assert layout.tokens == 640
    assert layout.paged_bytes == 10 * BLOCK
    assert layout.ring_bytes == RINGS
    assert layout.paged_rows(SPEC.paged[0]) == 320
    assert layout.ring_rows(SPEC.rings[0]) == 3 * 4 * 20 + 100
    assert layout.ring_rows(SPEC.rings[1]) == 4 * 6


def test_tokens_are_rounded_up_to_blocks():
    assert fit_cache(SPEC, replace(REQUEST, cache_tokens=641)).num_blocks == 11


def test_a_share_of_the_memory_is_filled():
    layout = fit_cache(SPEC, replace(REQUEST, free_bytes=2 * (RINGS + 7 * BLOCK) + 1))
    assert layout.num_blocks == 7


def test_no_more_blocks_than_full_slots_could_use():
    assert fit_cache(SPEC, REQUEST).num_blocks == 4 * 16


def test_a_model_without_paged_pools_still_has_blocks():
    layout = fit_cache(CacheSpec(paged=(), rings=SPEC.rings), REQUEST)
    assert layout.num_blocks == 4 * 16
    assert layout.paged_bytes == 0


@given(
    free=st.integers(0, 1 << 20),
    share=st.floats(0.01, 1.0),
    slots=st.integers(1, 9),
    tokens=st.none() | st.integers(1, 20_000),
)
def test_what_is_planned_fits_or_is_refused(free, share, slots, tokens):
    request = replace(REQUEST, free_bytes=free, memory_share=share, slots=slots, cache_tokens=tokens)
    try:
        layout = fit_cache(SPEC, request)
    except ConfigError:
        return
    assert layout.num_blocks >= 1
    assert layout.total_bytes <= (free if tokens else free * share)


def test_a_block_size_that_a_ratio_does_not_divide_is_refused():
    with pytest.raises(ConfigError, match=r"block_size = 63 is not allowed: .*'latent'.* every 2 tokens"):
        fit_cache(SPEC, replace(REQUEST, block_size=63))


def test_too_many_tokens_are_refused_with_both_numbers():
    with pytest.raises(ConfigError, match=r"cache_tokens = 1000000 .* would take 32.5 MiB .* has 10.0 MiB free"):
        fit_cache(SPEC, replace(REQUEST, cache_tokens=1_000_000, free_bytes=10 << 20))


def test_too_small_a_share_is_refused_with_both_numbers():
    with pytest.raises(ConfigError, match=r"cache_memory = 0.5 .* gives 0.0 MiB of the device's 0.1 MiB free"):
        fit_cache(SPEC, replace(REQUEST, free_bytes=64 << 10))


def test_more_rows_than_can_be_addressed_are_refused():
    with pytest.raises(ConfigError, match="'latent' would have 3200000000 rows"):
        fit_cache(SPEC, replace(REQUEST, cache_tokens=6_400_000_000, free_bytes=1 << 50))
