"""Capabilities by name: what a test requires with `@pytest.mark.capability(NAME)`, and whether a backend claims it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from deepinfer_conformance.options import DTYPES
from deepinfer_core.api.errors import ConfigError, nearest
from deepinfer_core.interfaces.backend import Capabilities, Determinism
from deepinfer_core.interfaces.ops import RowFormat, WeightFormat

Claim = Callable[[Capabilities], bool]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier")


def _dtype(name: str) -> Claim:
    return lambda capabilities: name in capabilities.dtypes


def _weight(format: WeightFormat) -> Claim:
    return lambda capabilities: format in capabilities.weight_formats


def _cache(format: RowFormat) -> Claim:
    return lambda capabilities: format in capabilities.kv_formats


def _collective(name: str) -> Claim:
    return lambda capabilities: name in capabilities.collectives


def _determinism(level: Determinism) -> Claim:
    return lambda capabilities: capabilities.determinism >= level


CLAIMS: Mapping[str, Claim] = {
    **{f"dtype.{name}": _dtype(name) for name in DTYPES},
    **{f"weights.{one.value}": _weight(one) for one in WeightFormat},
    **{f"cache.{one.value}": _cache(one) for one in RowFormat},
    **{f"determinism.{one.name.lower()}": _determinism(one) for one in Determinism if one is not Determinism.NONE},
    "graph_capture": lambda capabilities: capabilities.graph_capture,
    "collectives": lambda capabilities: bool(capabilities.collectives),
    **{f"collectives.{name}": _collective(name) for name in COLLECTIVES},
}


def check_claims(names: Iterable[str]) -> None:
    """Raises `ConfigError` for a name that is no capability."""
    for name in names:
        if name not in CLAIMS:
            raise ConfigError(f"{name!r} is no capability{nearest(name, CLAIMS)}; there are: {', '.join(CLAIMS)}")


def unclaimed(names: Iterable[str], capabilities: Capabilities) -> tuple[str, ...]:
    """Those of the capabilities that the backend does not claim."""
    return tuple(name for name in names if not CLAIMS[name](capabilities))
