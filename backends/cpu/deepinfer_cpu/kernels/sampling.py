"""Masks, penalties, the draw, logprobs and the acceptance of drafts. Meanings: deepinfer_core/ops/sample.py."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.ops import sample as ops
from deepinfer_cpu._kernels import Table
from deepinfer_cpu.kernels.arguments import as_type, empty, f32


class Sampling:
    """The kernels of sample.py, on one instruction set."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def sample_tokens(
        self,
        logits: Tensor,
        temperature: Tensor | None,
        top_k: Tensor | None,
        top_p: Tensor | None,
        min_p: Tensor | None,
        seed: Tensor,
        sample: Tensor,
        position: Tensor,
        max_candidates: int | None = None,
    ) -> Tensor:
        """[N, V] -> int64 [N]. What sorts the vocabulary is left to torch; the draw over all of it is ours."""
        if top_k is not None or top_p is not None:
            return ops.sample_tokens(logits, temperature, top_k, top_p, min_p, seed, sample, position, max_candidates)
        x, keys = f32(logits), [as_type(key, torch.int64) for key in (seed, sample, position)]
        t = None if temperature is None else f32(temperature)
        m = None if min_p is None else f32(min_p)
        out = torch.empty(x.shape[0], dtype=torch.int64, device="cpu")
        self._table.sample_tokens(
            x.data_ptr(),
            x.shape[0],
            x.shape[1],
            0 if t is None else t.data_ptr(),
            0 if m is None else m.data_ptr(),
            *(key.data_ptr() for key in keys),
            out.data_ptr(),
        )
        return out

    def apply_token_mask(self, logits: Tensor, mask: Tensor) -> Tensor:
        """[N, V] -> [N, V]."""
        x, m, y = f32(logits), as_type(mask, torch.int32), empty(*logits.shape)
        self._table.apply_token_mask(x.data_ptr(), x.shape[0], x.shape[1], m.data_ptr(), y.data_ptr())
        return y

    def apply_penalties(
        self,
        logits: Tensor,
        prompt_seen: Tensor,
        counts: Tensor,
        repetition: Tensor,
        presence: Tensor,
        frequency: Tensor,
    ) -> Tensor:
        """[N, V] -> [N, V]."""
        x, seen, c, y = (
            f32(logits),
            as_type(prompt_seen, torch.bool),
            as_type(counts, torch.int32),
            empty(*logits.shape),
        )
        factors = [f32(factor) for factor in (repetition, presence, frequency)]
        self._table.apply_penalties(
            x.data_ptr(),
            x.shape[0],
            x.shape[1],
            seen.data_ptr(),
            c.data_ptr(),
            *(factor.data_ptr() for factor in factors),
            y.data_ptr(),
        )
        return y

    def top_logprobs(self, logits: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """[N, V] -> logprob [N], rank [N], ids [N, k], values [N, k]."""
        x, t = f32(logits), as_type(tokens, torch.int64)
        rows, vocab = x.shape
        logprob, rank = empty(rows), torch.empty(rows, dtype=torch.int32, device="cpu")
        ids, values = torch.empty(rows, min(k, vocab), dtype=torch.int64, device="cpu"), empty(rows, min(k, vocab))
        self._table.top_logprobs(
            x.data_ptr(),
            rows,
            vocab,
            t.data_ptr(),
            ids.shape[1],
            logprob.data_ptr(),
            rank.data_ptr(),
            ids.data_ptr(),
            values.data_ptr(),
        )
        return logprob, rank, ids, values

    def verify_drafts(self, target: Tensor, drafts: Tensor, num_drafts: Tensor) -> Tensor:
        """[B, 1+d] and [B, d] -> int32 [B]."""
        t, d, n = as_type(target, torch.int64), as_type(drafts, torch.int64), as_type(num_drafts, torch.int32)
        counts = torch.empty(d.shape[0], dtype=torch.int32, device="cpu")
        self._table.verify_drafts(t.data_ptr(), d.data_ptr(), n.data_ptr(), d.shape[0], d.shape[1], counts.data_ptr())
        return counts
