"""One layer of the model: n-gram memory, attention and experts around the residual streams."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from deepinfer_core.models.deepseek_v41.attention import Attention
from deepinfer_core.models.deepseek_v41.compressor import Compressor
from deepinfer_core.models.deepseek_v41.engram import Engram
from deepinfer_core.models.deepseek_v41.indexer import Indexer
from deepinfer_core.models.deepseek_v41.moe import Moe
from deepinfer_core.models.deepseek_v41.plan import LayerPlan
from deepinfer_core.models.deepseek_v41.runtime import Runtime
from deepinfer_core.models.deepseek_v41.step import State, StepContext, keep_rows
from deepinfer_core.models.deepseek_v41.weights import BlockWeights, MixWeights


@dataclass(frozen=True, slots=True)
class LayerParts:
    """The sublayers of one layer; None where it has no such part."""

    attention: Attention
    moe: Moe
    compressor: Compressor | None
    indexer: Indexer | None
    engram: Engram | None


class Layer:
    """Runs a layer's parts in order. At the boundary layer the rows that are not kept leave after their keys, latents
    and index keys are written."""

    def __init__(
        self, runtime: Runtime, plan: LayerPlan, weights: BlockWeights, parts: LayerParts, boundary: bool
    ) -> None:
        self._runtime = runtime
        self._plan = plan
        self._weights = weights
        self._parts = parts
        self._boundary = boundary

    def run(self, state: State, context: StepContext) -> None:
        """Bring `state` from this layer's input to its output. A drafter taps the streams before this."""
        if self._parts.engram is not None:
            assert state.classes is not None, "a model with n-gram tables has token classes"
            state.streams = self._parts.engram(state.streams, state.classes)
        pre = self._attention(state, context)
        self._experts(state, pre)

    def _attention(self, state: State, context: StepContext) -> Tensor:
        """Returns how the experts' input is to be mixed from the streams."""
        parts, pools, table = self._parts, context.pools, context.step.block_table
        written = context.kept if self._plan.decoder else context.all
        rows = written.rows
        x = self._input(state, state.pre, self._weights.attn_norm)
        parts.attention.write_window(x, written, pools)
        if parts.compressor is not None:
            parts.compressor.write(x, rows, context)
        if self._boundary:
            x, rows = keep_rows(x, context.step.kept), context.boundary
            state.keep(context.step.kept)
        low = parts.attention.low_rank_query(x)
        if parts.indexer is not None:
            parts.indexer.select(x, low, rows, context, state)
        pre, post, comb = self._mixes(state, self._weights.attn_mix)
        selected = state.selected if self._plan.ratio else None
        y = parts.attention.attend(low, rows, pools, table, selected)
        parts.attention.save_window(written, pools)
        state.streams = self._runtime.ops.hc_expand(y, state.streams, post, comb)
        return pre

    def _experts(self, state: State, pre: Tensor) -> None:
        next_pre, post, comb = self._mixes(state, self._weights.ffn_mix)
        y = self._parts.moe(self._input(state, pre, self._weights.ffn_norm))
        state.streams = self._runtime.ops.hc_expand(y, state.streams, post, comb)
        state.pre = next_pre

    def _input(self, state: State, pre: Tensor, norm: Tensor) -> Tensor:
        ops = self._runtime.ops
        return ops.rms_norm(ops.hc_collapse(state.streams, pre), norm, self._runtime.config.rms_norm_eps)

    def _mixes(self, state: State, mix: MixWeights) -> tuple[Tensor, Tensor, Tensor]:
        config = self._runtime.config
        iterations = config.hc_sinkhorn_iters
        return self._runtime.ops.hc_mixes(
            state.streams, mix.fn, mix.base, mix.scale, config.rms_norm_eps, config.hc_eps, iterations
        )
