"""Which pools the model keeps, in which formats, and the views of them that its layers use."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deepinfer_core.interfaces.cache import CacheSpec, PagedSpec, RingSpec
from deepinfer_core.interfaces.model import CachePools, ModelOptions
from deepinfer_core.interfaces.ops import PagedView, RowFormat, WindowView
from deepinfer_core.models.deepseek_v41.config import DeepseekV41Config
from deepinfer_core.models.deepseek_v41.plan import LayerPlan, Plan

WINDOW = "window"


@dataclass(frozen=True, slots=True)
class CacheFormats:
    """Row formats. With activation quantisation the pools hold the quantised bytes themselves."""

    window: RowFormat
    latent: RowFormat
    index: RowFormat


def choose_formats(options: ModelOptions) -> CacheFormats:
    """The checkpoint's own formats, or the activations' dtype."""
    if options.activation_quant:
        return CacheFormats(RowFormat.FP8_E8M0_32, RowFormat.FP4_E4M3_16, RowFormat.FP4_E8M0_32)
    plain = RowFormat.BF16 if options.dtype == torch.bfloat16 else RowFormat.F32
    return CacheFormats(plain, plain, plain)


class Caches:
    """Names, sizes and views of the pools. Holds no tensor."""

    def __init__(self, config: DeepseekV41Config, plan: Plan, formats: CacheFormats) -> None:
        self._config = config
        self._plan = plan
        self.formats = formats

    def spec(self) -> CacheSpec:
        """A latent and an index key for each group of a KV source; a window ring for every layer; raw projections of
        unfinished groups."""
        config, formats = self._config, self.formats
        assert config.indexer is not None or not self._plan.kv_sources, "KV sources have indexers"
        paged: list[PagedSpec] = []
        rings = [
            RingSpec(
                WINDOW, formats.window, config.head_dim, config.window_rows, config.num_hidden_layers, scratch=True
            )
        ]
        for source in self._plan.kv_sources:
            index_dim = config.indexer.head_dim if config.indexer else 0
            paged.append(PagedSpec(latent_name(source.layer), formats.latent, config.head_dim, source.ratio))
            paged.append(PagedSpec(index_name(source.layer), formats.index, index_dim, source.ratio))
            if source.ratio > 1:
                rows = self.pending_rows(source.ratio)
                rings.append(RingSpec(pending_name(source.layer), RowFormat.F32, 2 * config.head_dim, rows))
        return CacheSpec(tuple(paged), tuple(rings))

    def window_base(self, pools: CachePools, layer: int) -> int:
        """First row of a layer's rings in the window pool; for `num_hidden_layers`, of the scratch after them."""
        return layer * pools.slots * self._config.window_rows

    def window(self, pools: CachePools, layer: int) -> WindowView:
        return WindowView(
            pool=pools.rings[WINDOW],
            format=self.formats.window,
            base=self.window_base(pools, layer),
            fresh_base=self.window_base(pools, self._config.num_hidden_layers),
            ring_rows=self._config.window_rows,
            window=self._config.sliding_window,
        )

    def latents(self, pools: CachePools, block_table: Tensor, layer: LayerPlan) -> PagedView:
        """Entries that a layer attends to."""
        return self._paged(pools, latent_name(_source(layer)), self.formats.latent, block_table, layer.ratio)

    def index_keys(self, pools: CachePools, block_table: Tensor, layer: LayerPlan) -> PagedView:
        """Keys that an index source scores."""
        return self._paged(pools, index_name(_source(layer)), self.formats.index, block_table, layer.ratio)

    def pending_rows(self, ratio: int) -> int:
        """Rows of the ring that holds the tokens of unfinished groups."""
        return ratio + self._config.speculative_rows

    def _paged(self, pools: CachePools, name: str, format: RowFormat, block_table: Tensor, ratio: int) -> PagedView:
        return PagedView(pools.paged[name], format, block_table, pools.block_size // ratio, ratio)


def latent_name(layer: int) -> str:
    """Pool of the latents of a KV source."""
    return f"latent.{layer}"


def index_name(layer: int) -> str:
    """Pool of the index keys of a KV source."""
    return f"index.{layer}"


def pending_name(layer: int) -> str:
    """Pool of a KV source's raw projections."""
    return f"pending.{layer}"


def _source(layer: LayerPlan) -> int:
    assert layer.kv_source is not None, f"layer {layer.layer} attends to no entries"
    return layer.kv_source
