"""The whole model: embedding, layers, head, and the draft stages behind it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dense_v41.attention import Shared
from dense_v41.block import Layer
from dense_v41.config import DenseConfig
from dense_v41.draft import DraftContext, DraftOutput, DraftStage
from dense_v41.hyper import collapse, first_weights
from dense_v41.layers import Matrix, RMSNorm
from dense_v41.quantise import Quantisation, wide


@dataclass(frozen=True, slots=True)
class DenseOutput:
    """Of B sequences, the last K rows (all T without bounded decoder rows)."""

    logits: Tensor  # [B, K, V], at least float32
    hidden: Tensor  # [B, K, D], the head's input
    taps: Tensor | None  # [B, K, taps * D], the streams' mean before each tapped layer; None without draft stages
    index_loss: Tensor | None  # scalar, when it was asked for


class DenseModel(nn.Module):
    """DeepSeek-V4.1 on whole sequences. Modules carry the checkpoint's names.

    `dtype` is the dtype of the streams; sums, norms, scores and gates are at least float32. `token_classes` int64 [V]
    is the Engram token map; it may be None for a model without Engram.
    """

    def __init__(
        self,
        config: DenseConfig,
        token_classes: Tensor | None,
        quantisation: Quantisation,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config, self.dtype = config, dtype
        classes = torch.empty(0, dtype=torch.int64) if token_classes is None else token_classes
        self.embed = Matrix(config.hidden_size, config.vocab_size)
        self.layers = nn.ModuleList(
            Layer(config, layer, classes, quantisation) for layer in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.head = Matrix(config.hidden_size, config.vocab_size)
        self.mtp = nn.ModuleList(
            DraftStage(config, stage, quantisation) for stage in range(config.num_nextn_predict_layers)
        )

    def forward(self, ids: Tensor, decoder_start: int | None = None, index_loss: bool = False) -> DenseOutput:
        """ids int64 [B, T]. With `decoder_start`, the layers after the last KV source run the rows from there on only.

        `index_loss` asks for the sum over indexers of the divergence between their scores and the attention.
        """
        shared = Shared(torch.arange(ids.shape[1], device=ids.device), index_losses=[] if index_loss else None)
        streams = self._embedded(ids)
        pre = first_weights(streams)
        taps: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            if layer.engram is not None:
                streams = layer.engram(streams, ids)
            if number in self.config.dspark_target_layer_ids:
                taps.append(wide(streams).mean(-2).to(streams.dtype))
            streams, pre = layer(streams, pre, shared)
            if number == self.config.last_encoder_layer and decoder_start is not None:
                shared.keep_rows_from(decoder_start)
                streams, pre = streams[:, decoder_start:], pre[:, decoder_start:]
        hidden = self.norm(collapse(streams, pre))
        return DenseOutput(
            logits=self._logits(hidden),
            hidden=hidden,
            taps=torch.cat([tap[:, -hidden.shape[1] :] for tap in taps], -1) if taps and len(self.mtp) else None,
            index_loss=torch.stack(shared.index_losses).sum() if shared.index_losses else None,
        )

    def draft(self, taps: Tensor, first: int, anchors: Tensor, tokens: Tensor) -> DraftOutput:
        """Drafts after each anchor position [A], from the taps [B, K, taps * D] of positions `first` .. first + K - 1.

        tokens [B, A, S] holds the true tokens at anchor + 1 .. anchor + S (teacher forcing); tokens [B, A, 1] only the
        first of them, and then each draft follows the one before it.
        """
        size, noise = self.config.dspark_block_size, self.config.dspark_noise_token_id
        stage = self.mtp[0]
        context = DraftContext(stage.main_norm(stage.main_proj(taps)), first, anchors)
        ids = F.pad(tokens[..., :1], (0, size - 1), value=noise)
        streams = self._embedded(ids)
        pre = first_weights(streams)
        for stage in self.mtp:
            streams, pre = stage(streams, pre, context)
        hidden = collapse(streams, pre)
        return stage.finish(hidden, self._logits(stage.norm(hidden)), tokens)

    def _embedded(self, ids: Tensor) -> Tensor:
        rows = self.embed.weight[ids].to(self.dtype)
        return rows.unsqueeze(-2).expand(*ids.shape, self.config.hc_mult, -1)

    def _logits(self, hidden: Tensor) -> Tensor:
        return F.linear(wide(hidden), wide(self.head.weight))
