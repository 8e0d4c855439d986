"""The mixture of experts of one layer: routed experts, wherever they live, and the shared expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from deepinfer_core.models.deepseek_v41.runtime import Runtime
from deepinfer_core.models.deepseek_v41.weights import MoeWeights

if TYPE_CHECKING:
    from deepinfer_core.interfaces.parallel import Communicator, ExpertPlacement


class Moe:
    """Every rank sends its rows to all, runs its own experts on all rows, and gets its rows' sums back."""

    def __init__(
        self, runtime: Runtime, layer: int, weights: MoeWeights, ranks: Communicator, placement: ExpertPlacement
    ) -> None:
        self._runtime = runtime
        self._layer = layer
        self._weights = weights
        self._ranks = ranks
        self._placement = placement
        self._local = int(weights.w1.data.shape[0])  # experts of this rank
        self._first = ranks.group.rank * self._local
        everywhere = ranks.group.size * self._local
        assert placement.num_physical == everywhere, f"{placement.num_physical} replicas placed, {everywhere} loaded"

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, D] -> [T, D]. All ranks have the same T."""
        ops, config, w = self._runtime.ops, self._runtime.config, self._weights
        chosen, weights = ops.route(x, w.gate, w.bias, config.num_experts_per_tok, config.routed_scaling_factor)
        physical = self._placement.to_physical(self._layer, chosen)
        ranks = self._ranks
        routed = self._routed(ranks.all_gather(x), ranks.all_gather(physical), ranks.all_gather(weights))
        shared = ops.gated_mlp(x, w.shared_w1, w.shared_w3, w.shared_w2, config.swiglu_limit, self._runtime.quantise)
        return (ranks.reduce_scatter(routed) + shared.float()).to(x.dtype)

    def _routed(self, x: Tensor, physical: Tensor, weights: Tensor) -> Tensor:
        """float32 [T, D]: the sum over this rank's experts."""
        ops, config, w = self._runtime.ops, self._runtime.config, self._weights
        order, offsets = ops.moe_permute(physical - self._first, self._local)
        y = ops.experts(x, order, offsets, weights, w.w1, w.w3, w.w2, config.swiglu_limit, self._runtime.quantise)
        return ops.moe_combine(y, order, config.num_experts_per_tok)
