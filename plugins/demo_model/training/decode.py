"""Generating with the dense implementation a token at a time: what each layer stores, and sampling.

Every sequence of a batch stands at the same position; one with a longer prompt is still fed its prompt while another
already continues.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from dense_v41 import DenseModel, quantise
from dense_v41.attention import Attention
from dense_v41.hyper import collapse, first_weights
from dense_v41.layers import rotate
from dense_v41.quantise import wide
from torch import Tensor

from deepinfer_demo_model.spec import PAD


class Decoder:
    """Runs `model` on the next token of each sequence, up to `length` tokens."""

    def __init__(self, model: DenseModel, batch: int, length: int) -> None:
        self.model, self.position = model, 0
        device, dtype, config = model.embed.weight.device, model.dtype, model.config

        def rows(count: int, size: int) -> Tensor:
            return torch.zeros(batch, count, size, dtype=dtype, device=device)

        sources = {layer: config.ratio(layer) for layer in config.kv_source_layer_ids}
        self.ids = torch.full((batch, length), PAD, device=device)
        self.windows = [rows(length, config.head_dim) for _ in model.layers]
        self.pending = {layer: rows(ratio, config.hidden_size) for layer, ratio in sources.items()}
        self.entries = {layer: rows(length // ratio, config.head_dim) for layer, ratio in sources.items()}
        self.index_keys = {layer: rows(length // ratio, config.index_head_dim) for layer, ratio in sources.items()}

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Tensor:
        """tokens int64 [B] at the next position -> logits [B, V]."""
        model = self.model
        self.ids[:, self.position] = tokens
        ids = self.ids[:, : self.position + 1]
        streams = model._embedded(ids[:, -1:])
        pre = first_weights(streams)
        self.source, self.selected, self.candidates = -1, None, None
        for number, layer in enumerate(model.layers):
            if layer.engram is not None:
                streams = layer.engram(streams, ids)
            streams, pre = layer.sublayers(streams, pre, lambda x, n=number, a=layer.attn: self._attend(n, a, x))
        self.position += 1
        return model._logits(model.norm(collapse(streams, pre)))[:, -1]

    def _attend(self, number: int, attention: Attention, x: Tensor) -> Tensor:
        """x [B, 1, D] -> [B, 1, D], storing what later positions need."""
        position = torch.tensor([self.position], device=x.device)
        q, low = attention.query(x, position)
        self.windows[number][:, self.position] = attention.window_key(x, position)[:, 0]
        oldest = max(0, self.position + 1 - self.model.config.sliding_window)
        keys = self.windows[number][:, oldest : self.position + 1]
        visible = torch.ones(len(x), 1, keys.shape[1], dtype=torch.bool, device=x.device)
        if attention.compressor is not None:
            self.source = number
            self._publish(number, attention, x)
        count = (self.position + 1) // attention.ratio if attention.ratio else 0
        if count:
            if attention.selects:
                self._select(attention, x, low, position, count)
            keys = torch.cat((keys, self.entries[self.source][:, :count]), 1)
            visible = torch.cat((visible, self.selected), 2)
        return attention.output(attention.attend(q, keys, visible), position)

    def _publish(self, number: int, attention: Attention, x: Tensor) -> None:
        """A source's entry and index key, when its group of tokens is complete."""
        ratio = attention.ratio
        self.pending[number][:, self.position % ratio] = x[:, 0]
        if (self.position + 1) % ratio:
            return
        latent = attention.compressor(self.pending[number])
        first = torch.tensor([self.position + 1 - ratio], device=x.device)
        entry = rotate(latent, first, attention.frequencies)
        entry = quantise.fp4_fine(entry) if attention.quantisation.stored else entry
        self.entries[number][:, self.position // ratio] = entry[:, 0]
        self.index_keys[number][:, self.position // ratio] = attention.indexer.keys(latent, first)[:, 0]

    def _select(self, attention: Attention, x: Tensor, low: Tensor, position: Tensor, count: int) -> None:
        seen = torch.tensor([count], device=x.device)
        keys = self.index_keys[self.source][:, :count]
        scores = attention.indexer.scores(x, low, position, keys, seen)
        self.selected, self.candidates = attention.indexer.select(scores, seen, self.candidates)


@torch.no_grad()
def continue_prompts(
    model: DenseModel, prompts: Sequence[Sequence[int]], length: int, temperature: Tensor | float, seed: int = 0
) -> Tensor:
    """int64 [B, length]: each prompt and what the model says after it, through ends of sentences.

    `temperature` is one number or one a sequence; 0 is greedy. Prompts longer than `length` are cut.
    """
    device = model.embed.weight.device
    given = torch.full((len(prompts), length), -1, device=device)
    for row, prompt in enumerate(prompts):
        given[row, : len(prompt)] = torch.tensor(prompt[:length], device=device)
    heat = torch.as_tensor(temperature, device=device, dtype=torch.float32).expand(len(prompts)).unsqueeze(1)
    generator = torch.Generator(device).manual_seed(seed)
    decoder = Decoder(model, len(prompts), length)
    tokens = given[:, 0]
    for position in range(1, length):
        logits = wide(decoder.step(tokens)).float()
        noise = torch.empty_like(logits).exponential_(generator=generator).log_()
        drawn = (logits - heat * noise).argmax(-1)
        tokens = torch.where(given[:, position] >= 0, given[:, position], drawn)
    decoder.ids[:, -1] = tokens
    return decoder.ids
