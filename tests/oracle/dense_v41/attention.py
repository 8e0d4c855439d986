"""Attention of one layer over its sliding window and the selected compressed entries, for whole sequences at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dense_v41 import quantise
from dense_v41.compress import Compressor, Indexer
from dense_v41.config import DenseConfig
from dense_v41.layers import Fp8Matrix, RMSNorm, rotary_frequencies, rotate
from dense_v41.quantise import Quantisation, wide

UNSEEN = -1e30  # a score that gets no share, and that a row of nothing else can have without a NaN


@dataclass(slots=True)
class Shared:
    """What layers hand on to later layers of one forward. B sequences, K query rows, N entries.

    `rows` are the absolute positions of the query rows, `floor` the lowest position that their windows may look at.
    `index_losses` collects the indexers' training terms when it is a list.
    """

    rows: Tensor  # int64 [K]
    floor: int = 0
    entries: Tensor | None = None  # [B, N, head_dim] of the latest KV source
    index_keys: Tensor | None = None  # [B, N, index_head_dim]
    selected: Tensor | None = None  # bool [B, K, N] of the latest index source
    candidates: Tensor | None = None  # bool [B, K, N] of the candidate source
    index_losses: list[Tensor] | None = None

    def keep_rows_from(self, first: int) -> None:
        """Drop the query rows before position `first` and close the windows below it."""
        skip = first - int(self.rows[0])
        self.rows, self.floor = self.rows[skip:], first
        self.selected = None if self.selected is None else self.selected[:, skip:]
        self.candidates = None if self.candidates is None else self.candidates[:, skip:]


class Projections(nn.Module):
    """The matrices that every attention has, the draft stages' too: queries, the shared key-value, the output."""

    frequencies: Tensor

    def __init__(self, config: DenseConfig, layer: int, quantisation: Quantisation) -> None:
        super().__init__()
        c, self.config, self.quantisation = config, config, quantisation
        self.wq_a = Fp8Matrix(c.hidden_size, c.q_lora_rank, quantisation)
        self.q_norm = RMSNorm(c.q_lora_rank, c.rms_norm_eps)
        self.wq_b = Fp8Matrix(c.q_lora_rank, c.num_attention_heads * c.head_dim, quantisation)
        self.wkv = Fp8Matrix(c.hidden_size, c.head_dim, quantisation)
        self.kv_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.attn_sink = nn.Parameter(torch.zeros(c.num_attention_heads))
        self.wo_a = Fp8Matrix(
            c.num_attention_heads * c.head_dim // c.o_groups, c.o_groups * c.o_lora_rank, quantisation
        )
        self.wo_b = Fp8Matrix(c.o_groups * c.o_lora_rank, c.hidden_size, quantisation)
        self.register_buffer("frequencies", rotary_frequencies(c, layer), persistent=False)

    def query(self, x: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """(q [..., H, d] rotated, its low-rank form [..., q_lora_rank])."""
        low = self.q_norm(self.wq_a(x))
        q = self.wq_b(low).unflatten(-1, (self.config.num_attention_heads, -1))
        return rotate(q, position.unsqueeze(-1), self.frequencies), low

    def window_key(self, x: Tensor, position: Tensor) -> Tensor:
        """The key, which is also the value, of each row: [..., d]."""
        key = rotate(self.kv_norm(self.wkv(x)), position, self.frequencies)
        return quantise.fp8(key) if self.quantisation.stored else key

    def output(self, heads: Tensor, position: Tensor) -> Tensor:
        """[..., H, d] back to [..., D]: undo the rotation, then a low-rank map for each group of heads, then wo_b."""
        c = self.config
        heads = rotate(heads, position.unsqueeze(-1), self.frequencies, inverse=True)
        grouped = heads.flatten(-2).unflatten(-1, (c.o_groups, -1))
        weight = self.wo_a.rounded_weight().to(grouped.dtype).unflatten(0, (c.o_groups, -1))
        return self.wo_b(torch.einsum("...gd,grd->...gr", grouped, weight).flatten(-2))

    def attend(self, q: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
        """q [B, K, H, d], keys [B, N, d], visible bool [B, K, N] -> [B, K, H, d].

        Keys are the values too. Each head's sink is one more, unscaled, term of the softmax's denominator.
        """
        scores = wide(torch.einsum("bkhd,bnd->bhkn", q, keys)) * self.config.head_dim**-0.5
        scores = scores.masked_fill(~visible.unsqueeze(1), -torch.inf)
        sink = wide(self.attn_sink).view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        p = torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
        return torch.einsum("bhkn,bnd->bkhd", p.to(keys.dtype), keys)


class Attention(Projections):
    """One backbone layer's attention, with a compressor where it is a KV source and an indexer where it selects."""

    def __init__(self, config: DenseConfig, layer: int, quantisation: Quantisation) -> None:
        super().__init__(config, layer, quantisation)
        self.ratio = config.ratio(layer)
        is_source = layer in config.kv_source_layer_ids
        self.compressor = Compressor(config, self.ratio) if is_source else None
        selects = layer in config.index_source_layer_ids
        self.indexer = Indexer(config, layer, is_source, quantisation) if is_source or selects else None
        self.selects = selects

    def forward(self, x: Tensor, shared: Shared) -> Tensor:
        """x [B, K, D] -> [B, K, D]. A KV source needs K = T rows from position 0."""
        position = shared.rows
        q, low = self.query(x, position)
        keys, visible = self.window_key(x, position), self._window_mask(shared).expand(x.shape[0], -1, -1)
        if self.compressor is not None:
            self._publish(x, shared)
        if self.ratio and shared.entries is not None and shared.entries.shape[1]:
            if self.selects:
                self._select(x, q, low, shared)
            assert shared.selected is not None
            keys = torch.cat((keys, shared.entries), 1)
            visible = torch.cat((visible, shared.selected), 2)
        return self.output(self.attend(q, keys, visible), position)

    def _window_mask(self, shared: Shared) -> Tensor:
        """bool [1, K, K]: the row's own position and the ones before it, `sliding_window` in all, from `floor` on."""
        age = shared.rows[:, None] - shared.rows[None, :]
        mask = (age >= 0) & (age < self.config.sliding_window) & (shared.rows >= shared.floor)
        return mask.unsqueeze(0)

    def _publish(self, x: Tensor, shared: Shared) -> None:
        """Compress this layer's input into entries and index keys for itself and the layers after it."""
        assert self.compressor is not None
        assert self.indexer is not None
        latents = self.compressor(x)
        position = torch.arange(latents.shape[1], device=x.device) * self.ratio  # an entry stands at its first token
        shared.index_keys = self.indexer.keys(latents.detach(), position)
        entries = rotate(latents, position, self.frequencies)
        shared.entries = quantise.fp4_fine(entries) if self.quantisation.stored else entries

    def _select(self, x: Tensor, q: Tensor, low: Tensor, shared: Shared) -> None:
        assert self.indexer is not None
        assert shared.index_keys is not None
        seen = (shared.rows + 1) // self.ratio  # entries whose last token is not after the row
        with torch.set_grad_enabled(shared.index_losses is not None and torch.is_grad_enabled()):
            scores = self.indexer.scores(x.detach(), low.detach(), shared.rows, shared.index_keys, seen)
        shared.selected, shared.candidates = self.indexer.select(scores, seen, shared.candidates)
        if shared.index_losses is not None:
            assert shared.entries is not None
            shared.index_losses.append(index_loss(scores, q, shared.entries))


def index_loss(scores: Tensor, q: Tensor, entries: Tensor) -> Tensor:
    """KL divergence of the index scores' softmax from the attention that all visible entries would get.

    scores [B, K, N], -inf where an entry is not visible; q [B, K, H, d]; entries [B, N, d]. The mean over the rows that
    see an entry.
    """
    hidden = scores == -torch.inf
    with torch.no_grad():
        full = wide(torch.einsum("bkhd,bnd->bhkn", q, entries)) * q.shape[-1] ** -0.5
        target = full.masked_fill(hidden.unsqueeze(1), UNSEEN).softmax(-1).mean(1).masked_fill(hidden, 0)
    predicted = scores.masked_fill(hidden, UNSEEN).log_softmax(-1).masked_fill(hidden, 0)
    rows = (~hidden).any(-1).sum()
    return F.kl_div(predicted, target, reduction="sum") / rows
