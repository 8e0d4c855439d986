"""One layer: attention and experts inside their hyper-connections, and a backbone layer's Engram."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from dense_v41.attention import Attention, Shared
from dense_v41.config import DenseConfig
from dense_v41.engram import Engram
from dense_v41.hyper import Mixer, collapse, expand
from dense_v41.layers import RMSNorm
from dense_v41.moe import MoE
from dense_v41.quantise import Quantisation


def enter(mixer: Mixer, norm: RMSNorm, streams: Tensor, pre: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(a sublayer's input by weights made before it, `pre` for the next one, its own post, its own comb)."""
    next_pre, post, comb = mixer(streams)
    return norm(collapse(streams, pre)), next_pre, post, comb


class Block(nn.Module):
    """What backbone layers and draft stages have in common."""

    def __init__(self, config: DenseConfig, ffn: MoE) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.ffn_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.hc_attn, self.hc_ffn = Mixer(config), Mixer(config)
        self.ffn = ffn

    def sublayers(self, streams: Tensor, pre: Tensor, attend: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """(streams, the `pre` for the layer after)."""
        x, pre, post, comb = enter(self.hc_attn, self.attn_norm, streams, pre)
        streams = expand(attend(x), streams, post, comb)
        x, pre, post, comb = enter(self.hc_ffn, self.ffn_norm, streams, pre)
        return expand(self.ffn(x), streams, post, comb), pre


class Layer(Block):
    """A backbone layer."""

    def __init__(self, config: DenseConfig, layer: int, classes: Tensor, quantisation: Quantisation) -> None:
        super().__init__(config, MoE(config, config.n_routed_experts, config.num_experts_per_tok, quantisation))
        self.attn = Attention(config, layer, quantisation)
        has_memory = layer in config.engram_layer_ids
        self.engram = Engram(config, layer, classes, quantisation) if has_memory else None

    def forward(self, streams: Tensor, pre: Tensor, shared: Shared) -> tuple[Tensor, Tensor]:
        return self.sublayers(streams, pre, lambda x: self.attn(x, shared))
