"""Single-pass manifold hyper-connections: several residual streams, mixed before and after each sublayer.

Formulas: arXiv 2512.24880, in V4.1's form, where a sublayer's input weights come from the sublayer before it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dense_v41.config import DenseConfig
from dense_v41.quantise import wide


class Mixer(nn.Module):
    """The weights of one sublayer's connections from the streams [..., n, D]: `pre` for the next sublayer's input."""

    def __init__(self, config: DenseConfig) -> None:
        super().__init__()
        n = config.hc_mult
        self.streams, self.iterations = n, config.hc_sinkhorn_iters
        self.norm_eps, self.eps = config.rms_norm_eps, config.hc_eps
        self.fn = nn.Parameter(torch.randn((2 + n) * n, n * config.hidden_size) * 0.01)
        self.base = nn.Parameter(torch.zeros((2 + n) * n))
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(pre [..., n], post [..., n], comb [..., n, n]), at least float32."""
        n = self.streams
        flat = wide(streams.flatten(-2))
        mixed = (flat @ self.fn.T) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + self.norm_eps)
        pre, post, comb = mixed.split((n, n, n * n), -1)
        base_pre, base_post, base_comb = self.base.split((n, n, n * n))
        pre = torch.sigmoid(pre * self.scale[0] + base_pre) + self.eps
        post = 2 * torch.sigmoid(post * self.scale[1] + base_post)
        comb = (comb * self.scale[2] + base_comb).unflatten(-1, (n, n))
        return pre, post, self._sinkhorn(comb)

    def _sinkhorn(self, logits: Tensor) -> Tensor:
        comb = logits.softmax(-1) + self.eps
        comb = comb / (comb.sum(-2, keepdim=True) + self.eps)
        for _ in range(self.iterations - 1):
            comb = comb / (comb.sum(-1, keepdim=True) + self.eps)
            comb = comb / (comb.sum(-2, keepdim=True) + self.eps)
        return comb


def collapse(streams: Tensor, pre: Tensor) -> Tensor:
    """sum_k pre_k * stream_k: [..., n, D] -> [..., D]."""
    return (pre.unsqueeze(-1) * wide(streams)).sum(-2).to(streams.dtype)


def expand(y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """New stream k = post_k * y + sum_j comb[j, k] * stream_j."""
    total = post.unsqueeze(-1) * wide(y).unsqueeze(-2)
    for j, stream in enumerate(wide(streams).unbind(-2)):  # a product of such small matrices is better spelt out
        total = total + comb[..., j, :, None] * stream.unsqueeze(-2)
    return total.to(streams.dtype)


def first_weights(streams: Tensor) -> Tensor:
    """The `pre` of the very first sublayer: the first stream alone."""
    pre = torch.zeros(streams.shape[:-1], dtype=wide(streams[:0]).dtype, device=streams.device)
    pre[..., 0] = 1
    return pre
