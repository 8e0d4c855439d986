"""Compressed entries and the choice among them: a KV source's compressor and an index source's indexer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dense_v41 import quantise
from dense_v41.config import DenseConfig
from dense_v41.layers import Fp8Matrix, Matrix, RMSNorm, rotary_frequencies, rotate
from dense_v41.quantise import Quantisation, wide


class Compressor(nn.Module):
    """One latent for each `ratio` tokens: a softmax-gated mean for each channel, then a norm."""

    def __init__(self, config: DenseConfig, ratio: int) -> None:
        super().__init__()
        self.ratio = ratio
        self.wkv = Matrix(config.hidden_size, config.head_dim)
        self.norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.wgate = Matrix(config.hidden_size, config.head_dim) if ratio > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, D] -> latents [B, T // ratio, head_dim], not yet rotated. An unfinished last group gives none."""
        if self.wgate is None:
            return self.norm(self.wkv(x))
        whole = wide(x[:, : x.shape[1] // self.ratio * self.ratio])
        values = self.wkv(whole).unflatten(1, (-1, self.ratio))
        gates = self.wgate(whole).unflatten(1, (-1, self.ratio))
        return self.norm((values * gates.softmax(2)).sum(2).to(x.dtype))


class Indexer(nn.Module):
    """Makes the entries' keys at a KV source; scores entries for each row and marks the best at an index source."""

    frequencies: Tensor

    def __init__(self, config: DenseConfig, layer: int, makes_keys: bool, quantisation: Quantisation) -> None:
        super().__init__()
        self.config, self.quantisation = config, quantisation
        if makes_keys:
            self.wk = Matrix(config.head_dim, config.index_head_dim)
            self.k_norm = RMSNorm(config.index_head_dim, config.rms_norm_eps)
        if layer in config.index_source_layer_ids:
            self.wq_b = Fp8Matrix(config.q_lora_rank, config.index_n_heads * config.index_head_dim, quantisation)
            self.weights_proj = Matrix(config.hidden_size, config.index_n_heads)
        self.marks_candidates = layer == config.candidate_source_layer_id
        self.restricted = config.restricted(layer)
        self.register_buffer("frequencies", rotary_frequencies(config, layer), persistent=False)

    def keys(self, latents: Tensor, position: Tensor) -> Tensor:
        """[B, N, index_head_dim] from latents before their own rotation."""
        keys = rotate(self.k_norm(self.wk(latents)), position, self.frequencies)
        return quantise.fp4(keys) if self.quantisation.stored else keys

    def scores(self, x: Tensor, low: Tensor, position: Tensor, keys: Tensor, seen: Tensor) -> Tensor:
        """[B, K, N], at least float32: sum over heads of weight * relu(query . key); -inf from entry `seen` on."""
        c = self.config
        query = rotate(self.wq_b(low).unflatten(-1, (c.index_n_heads, -1)), position.unsqueeze(-1), self.frequencies)
        if self.quantisation.stored:
            query = quantise.fp4(query)
        weights = wide(self.weights_proj(x)) * (c.index_head_dim * c.index_n_heads) ** -0.5
        match = torch.einsum("bkhd,bnd->bkhn", wide(query), wide(keys)).relu()
        scores = torch.einsum("bkhn,bkh->bkn", match, weights)
        unseen = torch.arange(scores.shape[-1], device=x.device) >= seen[:, None]
        return scores.masked_fill(unseen, -torch.inf)

    def select(self, scores: Tensor, seen: Tensor, candidates: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(selected bool [B, K, N], candidates for later index sources)."""
        if self.marks_candidates:
            candidates = self._candidate_entries(scores, seen)
        elif self.restricted:
            assert candidates is not None
            scores = scores.masked_fill(~candidates, -torch.inf)
        return best(scores, self.config.index_topk), candidates

    def _candidate_entries(self, scores: Tensor, seen: Tensor) -> Tensor:
        """The entries of the best blocks, by their best entry; the block of the newest visible entry is always in."""
        c, entries = self.config, scores.shape[-1]
        padded = F.pad(scores, (0, -entries % c.candidate_block_size), value=-torch.inf)
        blocks = padded.unflatten(-1, (-1, c.candidate_block_size)).amax(-1)
        newest = torch.arange(blocks.shape[-1], device=scores.device) == (seen[:, None] - 1) // c.candidate_block_size
        kept = best(blocks.masked_fill(newest, torch.inf), c.candidate_topk_blocks)
        return kept.repeat_interleave(c.candidate_block_size, -1)[..., :entries]


@torch.no_grad()
def best(scores: Tensor, count: int) -> Tensor:
    """bool like scores: the `count` highest of the last dimension, ties to the lower index; -inf is never taken."""
    count = min(count, scores.shape[-1])
    threshold = scores.topk(count, -1).values[..., -1:]
    above, level = scores > threshold, scores == threshold
    room = count - above.sum(-1, keepdim=True)
    return (above | (level & (level.cumsum(-1) <= room))) & (scores > -torch.inf)
