"""An index source: scores the compressed entries that a row can see and selects the best of them."""

from __future__ import annotations

from torch import Tensor

from deepinfer_core.interfaces.ops import RowFormat, Rows
from deepinfer_core.models.deepseek_v41.plan import CandidateRole, LayerPlan
from deepinfer_core.models.deepseek_v41.runtime import Runtime
from deepinfer_core.models.deepseek_v41.step import State, StepContext
from deepinfer_core.models.deepseek_v41.weights import IndexerWeights
from deepinfer_core.ops.rows import visible_entries


class Indexer:
    """The indexer of one layer. Its keys are those of the layer's KV source."""

    def __init__(self, runtime: Runtime, plan: LayerPlan, weights: IndexerWeights, inv_freq: Tensor) -> None:
        assert runtime.config.indexer is not None, "an index source has an indexer"
        self._runtime = runtime
        self._config = runtime.config.indexer
        self._candidates = runtime.config.candidates
        self._plan = plan
        self._weights = weights
        self._inv_freq = inv_freq

    def select(self, x: Tensor, low: Tensor, rows: Rows, context: StepContext, state: State) -> None:
        """Put this layer's choice into `state`. x [T, D] is the attention's input, low [T, q_lora_rank] its query."""
        ops = self._runtime.ops
        scores = self._scores(x, low, rows, context)
        role = self._plan.candidates
        if self._candidates is None or role is not CandidateRole.OBEY:
            state.selected = ops.select_topk(scores, self._config.topk)
        else:
            state.selected = ops.select_topk(scores, self._config.topk, state.blocks, self._candidates.block_size)
        if self._candidates is not None and role is CandidateRole.CHOOSE:
            visible = visible_entries(rows, self._plan.ratio)
            size, count = self._candidates.block_size, self._candidates.topk_blocks
            state.blocks = ops.select_blocks(scores, visible, size, count)

    def _scores(self, x: Tensor, low: Tensor, rows: Rows, context: StepContext) -> Tensor:
        """float32 [T, entries]; -inf where an entry is not yet visible to the row."""
        ops, heads, dim = self._runtime.ops, self._config.n_heads, self._config.head_dim
        query = ops.linear(low, self._weights.wq_b, self._runtime.quantise).view(-1, heads, dim)
        query = ops.apply_rope(query, rows.position, self._inv_freq)
        if self._runtime.quantise:
            query = ops.fake_quant(query, RowFormat.FP4_E8M0_32)
        weights = ops.linear(x, self._weights.weights_proj, False).float() * (dim**-0.5 * heads**-0.5)
        keys = self._runtime.caches.index_keys(context.pools, context.step.block_table, self._plan)
        return ops.index_scores(query, weights, keys, rows, context.step.max_end // self._plan.ratio)
