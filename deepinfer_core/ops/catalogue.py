"""The catalogue: every op by name. Adding an op is adding its OpSpec to a family's SPECS and a line to OpTable."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from deepinfer_core.interfaces.ops import OpSpec
from deepinfer_core.ops import (
    attention,
    cache,
    compress,
    engram,
    hyper_connection,
    index,
    linear,
    moe,
    norm,
    quant,
    rope,
    sample,
)

_FAMILIES: tuple[tuple[OpSpec, ...], ...] = (
    norm.SPECS,
    rope.SPECS,
    hyper_connection.SPECS,
    linear.SPECS,
    quant.SPECS,
    moe.SPECS,
    compress.SPECS,
    index.SPECS,
    attention.SPECS,
    engram.SPECS,
    cache.SPECS,
    sample.SPECS,
)

CATALOGUE: Mapping[str, OpSpec] = MappingProxyType({spec.name: spec for family in _FAMILIES for spec in family})
