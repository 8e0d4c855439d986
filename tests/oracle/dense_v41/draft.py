"""DSpark draft stages: from the backbone's hidden taps at a position, the next few tokens in one parallel pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dense_v41.attention import Projections
from dense_v41.block import Block
from dense_v41.config import DenseConfig
from dense_v41.layers import Fp8Matrix, Matrix, RMSNorm
from dense_v41.moe import MoE
from dense_v41.quantise import Quantisation, wide


@dataclass(frozen=True, slots=True)
class DraftOutput:
    """B sequences, A anchors, S drafts each. Draft i stands `2 + i` positions after its anchor."""

    tokens: Tensor  # int64 [B, A, S], the most likely ones
    logits: Tensor  # [B, A, S, V], at least float32
    confidence: Tensor  # [B, A, S]; its sigmoid predicts that the draft is accepted


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What the stages look at: the backbone's rows from position `first` on, projected, and the anchors among them."""

    main: Tensor  # [B, K, D]
    first: int
    anchors: Tensor  # int64 [A]

    @property
    def position(self) -> Tensor:
        return torch.arange(self.first, self.first + self.main.shape[1], device=self.main.device)


class DraftAttention(Projections):
    """Each block row sees the backbone's rows in the window that ends at its anchor, and its whole block."""

    def __init__(self, config: DenseConfig, stage: int, quantisation: Quantisation) -> None:
        super().__init__(config, config.num_hidden_layers + stage, quantisation)

    def forward(self, x: Tensor, context: DraftContext) -> Tensor:
        """x [B, A, S, D] -> [B, A, S, D]."""
        position = context.anchors[:, None] + 1 + torch.arange(x.shape[2], device=x.device)
        q, _ = self.query(x, position)
        rows = self.window_key(context.main, context.position)
        age = context.anchors[:, None] - context.position
        visible = (age >= 0) & (age < self.config.sliding_window)
        return self.output(attend_block(q, rows, self.window_key(x, position), visible, self.attn_sink), position)


def attend_block(q: Tensor, rows: Tensor, block: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    """q [B, A, S, H, d], backbone rows [B, K, d], the block's own keys [B, A, S, d] -> [B, A, S, H, d].

    As `Projections.attend`, without a copy of the rows for every anchor; visible bool [A, K].
    """
    before = wide(torch.einsum("bashd,bkd->bashk", q, rows)) * q.shape[-1] ** -0.5
    before = before.masked_fill(~visible[:, None, None], -torch.inf)
    inside = wide(torch.einsum("bashd,bakd->bashk", q, block)) * q.shape[-1] ** -0.5
    p = torch.cat((before, inside, wide(sink)[:, None].expand(*q.shape[:-1], 1)), -1).softmax(-1).to(rows.dtype)
    heads = torch.einsum("bashk,bkd->bashd", p[..., : rows.shape[1]], rows)
    return heads + torch.einsum("bashk,bakd->bashd", p[..., rows.shape[1] : -1], block)


class MarkovHead(nn.Module):
    """A low-rank correction of a draft's logits by the token before it."""

    def __init__(self, config: DenseConfig) -> None:
        super().__init__()
        self.embed = Matrix(config.dspark_markov_rank, config.vocab_size)
        self.head = Matrix(config.dspark_markov_rank, config.vocab_size)

    def forward(self, token: Tensor) -> tuple[Tensor, Tensor]:
        """token [...] -> (logits [..., V], embedding [..., rank]), at least float32."""
        embedding = wide(self.embed.weight[token])
        return self.head(embedding), embedding


class ConfidenceHead(nn.Module):
    """One number for each draft from its hidden state and the token before it."""

    def __init__(self, config: DenseConfig) -> None:
        super().__init__()
        self.proj = Matrix(config.hidden_size + config.dspark_markov_rank, 1)

    def forward(self, hidden: Tensor, previous: Tensor) -> Tensor:
        return self.proj(torch.cat((wide(hidden), previous), -1)).squeeze(-1)


class DraftStage(Block):
    """One stage. The first also projects the taps, the last also holds the heads."""

    def __init__(self, config: DenseConfig, stage: int, quantisation: Quantisation) -> None:
        super().__init__(
            config, MoE(config, config.dspark_n_routed_experts, config.dspark_num_experts_per_tok, quantisation)
        )
        self.attn = DraftAttention(config, stage, quantisation)
        if stage == 0:
            taps = len(config.dspark_target_layer_ids)
            self.main_proj = Fp8Matrix(taps * config.hidden_size, config.hidden_size, quantisation)
            self.main_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        if stage == config.num_nextn_predict_layers - 1:
            self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
            self.markov_head = MarkovHead(config)
            self.confidence_head = ConfidenceHead(config)

    def forward(self, streams: Tensor, pre: Tensor, context: DraftContext) -> tuple[Tensor, Tensor]:
        return self.sublayers(streams, pre, lambda x: self.attn(x, context))

    def finish(self, hidden: Tensor, base: Tensor, tokens: Tensor) -> DraftOutput:
        """hidden [B, A, S, D] and the head's logits [B, A, S, V] of a block whose rows hold `tokens`.

        tokens [B, A, S] are the tokens before each draft (teacher forcing). With [B, A, 1], only the anchors' next
        tokens, each draft follows the one before it.
        """
        outputs: list[tuple[Tensor, Tensor, Tensor]] = []
        for i in range(base.shape[2]):
            token = tokens[:, :, i] if i < tokens.shape[2] else outputs[-1][0]
            correction, embedding = self.markov_head(token)
            logits = base[:, :, i] + correction
            outputs.append((logits.argmax(-1), logits, self.confidence_head(hidden[:, :, i], embedding)))
        return DraftOutput(*(torch.stack(part, 2) for part in zip(*outputs, strict=True)))
