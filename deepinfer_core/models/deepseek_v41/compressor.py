"""A KV source: latents and index keys, one of each for every group of tokens, written to the paged pools."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import RowFormat, Rows, Weight
from deepinfer_core.models.deepseek_v41.caches import pending_name
from deepinfer_core.models.deepseek_v41.plan import LayerPlan
from deepinfer_core.models.deepseek_v41.runtime import Runtime
from deepinfer_core.models.deepseek_v41.step import StepContext, entry_destination, ring_destination
from deepinfer_core.models.deepseek_v41.weights import CompressorWeights


class Compressor:
    """The compressor of one layer. A group of `ratio` tokens gives its entry at its last token."""

    def __init__(self, runtime: Runtime, plan: LayerPlan, weights: CompressorWeights, inv_freq: Tensor) -> None:
        self._runtime = runtime
        self._plan = plan
        self._weights = weights
        self._inv_freq = inv_freq

    def write(self, x: Tensor, rows: Rows, context: StepContext) -> None:
        """Write the entries of the groups that end in this step. x [T, D] is the attention's input.

        The key is made from the latent before that is rotated. Both take the position of the group's first token.
        """
        ops, caches = self._runtime.ops, self._runtime.caches
        latent = self._latents(x, rows, context)
        position = rows.position - rows.position % self._plan.ratio
        key = ops.linear(latent, self._weights.wk, False)
        key = ops.rms_norm(key, self._weights.k_norm, self._runtime.config.rms_norm_eps)
        keys = caches.index_keys(context.pools, context.step.block_table, self._plan)
        latents = caches.latents(context.pools, context.step.block_table, self._plan)
        place = entry_destination(rows, context.step.write_start, latents)
        ops.write_rows(keys.pool, ops.apply_rope(key, position, self._inv_freq), place, keys.format)
        ops.write_rows(latents.pool, ops.apply_rope(latent, position, self._inv_freq), place, latents.format)

    def _latents(self, x: Tensor, rows: Rows, context: StepContext) -> Tensor:
        """[T, head_dim], meaningful where a group ends."""
        ops = self._runtime.ops
        if self._weights.wgate is None:
            mixed = ops.linear(x, self._weights.wkv, False)
        else:
            mixed = self._mix_group(x, self._weights.wgate, rows, context).to(x.dtype)
        return ops.rms_norm(mixed, self._weights.norm, self._runtime.config.rms_norm_eps)

    def _mix_group(self, x: Tensor, wgate: Weight, rows: Rows, context: StepContext) -> Tensor:
        """float32 [T, head_dim]: the gated mean of each group; raw projections are kept for groups that go on."""
        ops, ring_rows = self._runtime.ops, self._runtime.caches.pending_rows(self._plan.ratio)
        pending = context.pools.rings[pending_name(self._plan.layer)]
        values = ops.linear(x, self._weights.wkv, False, torch.float32)
        gates = ops.linear(x, wgate, False, torch.float32)
        mixed = ops.compress_kv(values, gates, pending, rows, self._plan.ratio, ring_rows)
        raw = torch.cat([values, gates], dim=1)
        ops.write_rows(pending, raw, ring_destination(rows, ring_rows), RowFormat.F32)
        return mixed
