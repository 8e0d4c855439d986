"""The DeepSeek-V4.1 text model over paged pools and per-slot rings: one forward for prefill, decode and mixed steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deepinfer_core.interfaces.cache import CacheSpec
from deepinfer_core.interfaces.model import CachePools, ModelInfo, StepInput
from deepinfer_core.models.deepseek_v41.draft import DraftWeights
from deepinfer_core.models.deepseek_v41.engram import TokenClasses
from deepinfer_core.models.deepseek_v41.layer import Layer
from deepinfer_core.models.deepseek_v41.plan import Plan
from deepinfer_core.models.deepseek_v41.runtime import Runtime
from deepinfer_core.models.deepseek_v41.step import State, make_context
from deepinfer_core.models.deepseek_v41.weights import ModelWeights


class DeepseekV41Model:
    """Implements `interfaces.model.Model`. Built by `assemble.py`; keeps no state of any request."""

    def __init__(
        self,
        runtime: Runtime,
        info: ModelInfo,
        plan: Plan,
        weights: ModelWeights,
        layers: Sequence[Layer],
        token_classes: TokenClasses | None,
        draft: DraftWeights | None,
    ) -> None:
        self._runtime = runtime
        self._info = info
        self._plan = plan
        self._weights = weights
        self._layers = tuple(layers)
        self._token_classes = token_classes
        self._draft = draft

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def draft(self) -> DraftWeights | None:
        """The checkpoint's draft stages, for a drafter to use."""
        return self._draft

    def cache_spec(self) -> CacheSpec:
        return self._runtime.caches.spec()

    def forward(self, step: StepInput, pools: CachePools) -> Tensor:
        """Write the caches of the step's rows; return float32 logits [N, vocab_size] of `step.logit_rows`."""
        context = make_context(step, pools, self._runtime.caches.window(pools, 0))
        state = self._start(step)
        for layer in self._layers:
            layer.run(state, context)
        if self._plan.boundary is None:
            state.keep(step.kept)
        return self._head(state, step.logit_rows)

    def _start(self, step: StepInput) -> State:
        """Every stream begins as the token's embedding; the first sublayer reads the first stream."""
        ops, streams = self._runtime.ops, self._runtime.config.hc_mult
        embedded = ops.embedding(step.tokens, self._weights.embed, self._runtime.dtype)
        pre = torch.zeros(embedded.shape[0], streams, dtype=torch.float32, device=embedded.device)
        pre[:, 0] = 1
        classes = self._token_classes(step) if self._token_classes is not None else None
        return State(embedded[:, None].repeat(1, streams, 1), pre, classes)

    def _head(self, state: State, rows: Tensor) -> Tensor:
        ops, eps = self._runtime.ops, self._runtime.config.rms_norm_eps
        hidden = ops.hc_collapse(state.streams[rows], state.pre[rows])
        return ops.lm_head(ops.rms_norm(hidden, self._weights.norm, eps), self._weights.head)
