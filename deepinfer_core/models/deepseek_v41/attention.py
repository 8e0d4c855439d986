"""Attention over a sliding window and selected compressed entries: the projections and the window's cache.

What the entries are is the business of `compressor.py`; which are selected, of `indexer.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.model import CachePools
from deepinfer_core.interfaces.ops import Rows, WindowView
from deepinfer_core.models.deepseek_v41.plan import LayerPlan
from deepinfer_core.models.deepseek_v41.runtime import Runtime
from deepinfer_core.models.deepseek_v41.step import RowSet
from deepinfer_core.models.deepseek_v41.weights import AttentionWeights


class Attention:
    """One layer's attention. In a step: `write_window`, then `attend`, then `save_window`."""

    def __init__(self, runtime: Runtime, plan: LayerPlan, weights: AttentionWeights, inv_freq: Tensor) -> None:
        self._runtime = runtime
        self._plan = plan
        self._weights = weights
        self._inv_freq = inv_freq

    def write_window(self, x: Tensor, rows: RowSet, pools: CachePools) -> None:
        """Store the step's own keys in the scratch. A key is its own value."""
        ops, config, view = self._runtime.ops, self._runtime.config, self._view(pools)
        key = ops.linear(x, self._weights.wkv, self._runtime.quantise)
        key = ops.rms_norm(key, self._weights.kv_norm, config.rms_norm_eps)
        key = ops.apply_rope(key, rows.rows.position, self._inv_freq)
        ops.write_rows(view.pool, key, rows.fresh, view.format)

    def save_window(self, rows: RowSet, pools: CachePools) -> None:
        """Copy the scratch to the rings, once nothing of this step looks at what it overwrites."""
        view = self._view(pools)
        ring = torch.where(rows.ring >= 0, view.base + rows.ring, -1)
        self._runtime.ops.copy_rows(view.pool, rows.fresh, ring)

    def low_rank_query(self, x: Tensor) -> Tensor:
        """x [T, D] -> [T, q_lora_rank]: what attention heads and index heads are projected from."""
        ops = self._runtime.ops
        low = ops.linear(x, self._weights.wq_a, self._runtime.quantise)
        return ops.rms_norm(low, self._weights.q_norm, self._runtime.config.rms_norm_eps)

    def attend(
        self, low: Tensor, rows: Rows, pools: CachePools, block_table: Tensor, selected: Tensor | None
    ) -> Tensor:
        """low [T, q_lora_rank] -> [T, D]. `rows` say where each row's window lies, `selected` which entries it sees."""
        ops, config = self._runtime.ops, self._runtime.config
        heads = ops.linear(low, self._weights.wq_b, self._runtime.quantise)
        query = heads.view(-1, config.num_attention_heads, config.head_dim)
        query = ops.apply_rope(query, rows.position, self._inv_freq)
        entries = self._runtime.caches.latents(pools, block_table, self._plan) if self._plan.ratio else None
        sink, scale = self._weights.sink, config.head_dim**-0.5
        out = ops.sparse_attention(query, rows, self._view(pools), entries, selected, sink, scale)
        return self._project(ops.apply_rope(out, rows.position, self._inv_freq, inverse=True))

    def _view(self, pools: CachePools) -> WindowView:
        return self._runtime.caches.window(pools, self._plan.layer)

    def _project(self, out: Tensor) -> Tensor:
        """[T, H, head_dim] -> [T, D]: each group of heads to its own low rank, then all to the hidden size."""
        ops, groups = self._runtime.ops, self._runtime.config.o_groups
        grouped = torch.unflatten(out.flatten(1), 1, (groups, out.shape[1] // groups * out.shape[2]))
        low = ops.grouped_linear(grouped, self._weights.wo_a)
        return ops.linear(low.flatten(1), self._weights.wo_b, self._runtime.quantise)
