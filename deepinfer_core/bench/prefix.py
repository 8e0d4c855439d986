"""What a prefix hit saves: the time to the first token of prompts that begin alike, cold and with a hit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Literal

from deepinfer_core.api.config import EngineConfig, read_environment
from deepinfer_core.bench.workload import random_requests, serve
from deepinfer_core.engine.build import build_engine
from deepinfer_core.plugin.loader import load_plugins

if TYPE_CHECKING:
    from deepinfer_core.engine.build import Built
    from deepinfer_core.engine.request import Request

OWN_TOKENS = 16  # the end of each prompt that no other has
REPLAYS: tuple[Literal["exact", "bounded"], ...] = ("exact", "bounded")


@dataclass(frozen=True, slots=True)
class PrefixGain:
    """Milliseconds of a one-token answer, medians over the repeats."""

    replay: str
    prompt_tokens: int
    cached_tokens: int  # of a hit: those that were not computed
    cold: float
    hit: float


def measure_prefix(
    config: EngineConfig, prompt_tokens: Sequence[int] = (512, 1024, 2048), repeats: int = 5
) -> tuple[PrefixGain, ...]:
    """One gain for each way to replay and each length. Raises what building an engine raises."""
    gains: list[PrefixGain] = []
    environment = read_environment()
    for way in REPLAYS:
        chosen = replace(config, replay=way, prefix_cache=True)
        built = build_engine(chosen, environment, load_plugins(environment))
        try:
            gains += (_measure(built, way, length, repeats) for length in prompt_tokens)
        finally:
            built.close()
    return tuple(gains)


def _measure(built: Built, way: str, length: int, repeats: int) -> PrefixGain:
    requests = _alike(built, length, repeats + 1)
    cold, hit = [], []
    for request in requests:
        built.engine.forget_prefixes()
        cold.append(_milliseconds(built, request))
    before = built.engine.stats()  # the cache holds the last prompt's blocks
    for request in requests[:-1]:
        hit.append(_milliseconds(built, request))
    after = built.engine.stats()
    spared = (after.hit_tokens - before.hit_tokens) - (after.replayed_tokens - before.replayed_tokens)
    return PrefixGain(way, length, spared // repeats, median(cold), median(hit))


def _alike(built: Built, length: int, count: int) -> list[Request]:
    """Prompts that differ in their last tokens only."""
    made = list(random_requests(built.info, count, length, 1))
    beginning = (made[0].prompt_token_ids or ())[: length - OWN_TOKENS]
    return [replace(one, prompt_token_ids=beginning + (one.prompt_token_ids or ())[-OWN_TOKENS:]) for one in made]


def _milliseconds(built: Built, request: Request) -> float:
    start = time.perf_counter()
    serve(built, [request])
    return (time.perf_counter() - start) * 1000


def render(gains: Sequence[PrefixGain]) -> str:
    """A table for people."""
    lines = ["replay    prompt   cached    cold ms     hit ms   times faster"]
    for g in gains:
        lines.append(
            f"{g.replay:8} {g.prompt_tokens:7d} {g.cached_tokens:8d} {g.cold:10.1f} {g.hit:10.1f} "
            f"{g.cold / g.hit:14.2f}"
        )
    return "\n".join(lines)
