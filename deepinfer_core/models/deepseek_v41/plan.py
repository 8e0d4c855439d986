"""What each layer does, derived once from the configuration: where its compressed entries and its selection come from,
and which half of the model it belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepinfer_core.models.deepseek_v41.config import DeepseekV41Config


class CandidateRole(Enum):
    """A layer's part in the two-level selection."""

    NONE = "none"
    CHOOSE = "choose"  # selects freely and chooses the candidate blocks
    OBEY = "obey"  # selects within the candidate blocks


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """One layer's wiring. Layers are named by their index."""

    layer: int
    ratio: int  # tokens a compressed entry; 0: the layer looks at its sliding window only
    kv_source: int | None  # layer whose compressed entries it attends to
    index_source: int | None  # layer whose selection it attends with
    candidates: CandidateRole
    engram: int | None  # index of its n-gram table
    decoder: bool  # runs kept rows only

    @property
    def is_kv_source(self) -> bool:
        return self.kv_source == self.layer

    @property
    def is_index_source(self) -> bool:
        return self.index_source == self.layer


@dataclass(frozen=True, slots=True)
class Plan:
    """All layers, and the last KV source: from its query side on, only kept rows are run. None: every row runs all."""

    layers: tuple[LayerPlan, ...]
    boundary: int | None

    @property
    def kv_sources(self) -> tuple[LayerPlan, ...]:
        return tuple(layer for layer in self.layers if layer.is_kv_source)


def plan_layers(config: DeepseekV41Config) -> Plan:
    """The wiring of a checked configuration."""
    boundary = max(config.kv_source_layer_ids, default=None)
    return Plan(tuple(_plan_layer(config, layer, boundary) for layer in range(config.num_hidden_layers)), boundary)


def _plan_layer(config: DeepseekV41Config, layer: int, boundary: int | None) -> LayerPlan:
    ratio = config.compress_ratios[layer]
    engrams = config.engram.layer_ids if config.engram else ()
    return LayerPlan(
        layer=layer,
        ratio=ratio,
        kv_source=latest(config.kv_source_layer_ids, layer) if ratio else None,
        index_source=latest(config.index_source_layer_ids, layer) if ratio else None,
        candidates=_candidate_role(config, layer),
        engram=engrams.index(layer) if layer in engrams else None,
        decoder=boundary is not None and layer > boundary,
    )


def _candidate_role(config: DeepseekV41Config, layer: int) -> CandidateRole:
    if config.candidates is None or layer not in config.index_source_layer_ids:
        return CandidateRole.NONE
    source = config.candidates.source_layer_id
    if layer == source:
        return CandidateRole.CHOOSE
    return CandidateRole.OBEY if layer > source else CandidateRole.NONE


def latest(sources: Sequence[int], layer: int) -> int | None:
    """The last source at or before a layer."""
    return max((source for source in sources if source <= layer), default=None)


def layer_faults(
    layers: int, ratios: Sequence[int], kv_sources: Sequence[int], index_sources: Sequence[int], candidate: int
) -> Iterator[tuple[str, str]]:
    """(field, fault) for everything in the layer maps that does not fit together. Entries of `ratios` beyond the layers
    belong to the draft stages."""
    if len(ratios) < layers:
        yield "compress_ratios", f"compress_ratios has {len(ratios)} entries and the model {layers} layers"
        return
    if any(ratios[layers:]):
        yield "compress_ratios", f"compress_ratios gives the draft stages {list(ratios[layers:])}: they must all be 0"
    for layer in kv_sources:
        if layer not in index_sources:
            yield "kv_source_layer_ids", f"layer {layer} is a KV source and must be in index_source_layer_ids"
    for layer in sorted({*kv_sources, *index_sources}):
        if not ratios[layer]:
            yield "compress_ratios", f"layer {layer} is a KV or index source and must have a compress_ratio above 0"
    for layer, ratio in enumerate(ratios[:layers]):
        source = latest(kv_sources, layer)
        if ratio and source is None:
            yield "kv_source_layer_ids", f"layer {layer} has compress_ratio {ratio} and no KV source at or before it"
        elif ratio and source is not None and ratios[source] != ratio:
            yield "compress_ratios", f"layer {layer} has ratio {ratio} and its KV source {source} has {ratios[source]}"
    yield from _candidate_faults(ratios, index_sources, candidate)


def _candidate_faults(ratios: Sequence[int], index_sources: Sequence[int], candidate: int) -> Iterator[tuple[str, str]]:
    if candidate < 0:
        return
    if candidate not in index_sources:
        yield "candidate_source_layer_id", f"candidate_source_layer_id = {candidate} must be in index_source_layer_ids"
    for layer in index_sources:
        if layer > candidate and ratios[layer] != ratios[candidate]:
            yield (
                "candidate_source_layer_id",
                f"layer {layer} has ratio {ratios[layer]} and cannot use the candidate blocks of layer {candidate}, "
                f"whose ratio is {ratios[candidate]}",
            )
