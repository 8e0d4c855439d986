"""The measurement of prefix hits measures hits. How long they take is not asserted."""

from pathlib import Path

from deepinfer_core.api.config import EngineConfig
from deepinfer_core.bench.prefix import OWN_TOKENS, measure_prefix, render

TINY = Path(__file__).parents[2] / "data" / "tiny_v41"
BLOCK = 16


def test_cold_prompts_are_cold_and_later_ones_hit() -> None:
    config = EngineConfig(model=str(TINY), backend="cpu", max_length=256, cache_tokens=2048, block_size=BLOCK)
    exact, bounded = measure_prefix(config, [200], repeats=2)
    assert (exact.replay, bounded.replay) == ("exact", "bounded")
    shared = (200 - OWN_TOKENS) // BLOCK * BLOCK
    assert 0 < exact.cached_tokens < bounded.cached_tokens < shared
    assert min(exact.cold, exact.hit, bounded.cold, bounded.hit) > 0
    assert len(render([exact, bounded]).splitlines()) == 3
