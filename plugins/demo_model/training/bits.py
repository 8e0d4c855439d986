"""Bits per byte of held-out text, and how evenly the experts are used on it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from dense_v41 import DenseModel
from tokenizers import Tokenizer
from torch import Tensor

from deepinfer_demo_model.spec import PAD
from training.tokens import encode

CONTEXT = 4096  # longer documents are read in parts, each without memory of the one before
BATCH_TOKENS = 16384


def bits_per_byte(model: DenseModel, tokenizer: Tokenizer, documents: Sequence[str]) -> float:
    """All bits of the documents' tokens, the ends of sentences among them, over the bytes of their text."""
    parts = []
    for ids in encode(tokenizer, documents):
        parts += [ids[first : first + CONTEXT + 1] for first in range(0, len(ids) - 1, CONTEXT)]
    nats = sum(_nats(model, batch) for batch in _batches(parts))
    return nats / math.log(2) / sum(len(document.encode()) for document in documents)


def _batches(parts: list[list[int]]) -> Iterator[list[list[int]]]:
    """Parts of like length together."""
    batch: list[list[int]] = []
    for part in sorted(parts, key=len):
        if batch and len(part) * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(part)
    yield batch


@torch.no_grad()
def _nats(model: DenseModel, batch: list[list[int]]) -> float:
    longest = max(len(part) for part in batch)
    ids = torch.tensor([part + [PAD] * (longest - len(part)) for part in batch], device=model.embed.weight.device)
    labels = torch.tensor([part[1:] + [-1] * (longest - len(part)) for part in batch], device=ids.device)
    logits = model(ids[:, :-1]).logits.flatten(0, 1)
    return float(F.cross_entropy(logits, labels.flatten(), ignore_index=-1, reduction="sum"))


def packed(tokenizer: Tokenizer, documents: Sequence[str], length: int, rows: int) -> Tensor:
    """int64 [rows, length]: the first tokens of the documents, one after the other."""
    stream = [token for ids in encode(tokenizer, documents) for token in ids]
    if len(stream) < rows * length:
        raise ValueError(f"the documents have {len(stream)} tokens, {rows} rows of {length} are wanted")
    return torch.tensor(stream[: rows * length]).view(rows, length)


@torch.no_grad()
def expert_load(model: DenseModel, windows: Tensor) -> list[float]:
    """The fullest expert's rows over the mean, in each layer, on windows int64 [R, T]."""
    total = [torch.zeros_like(layer.ffn.load) for layer in model.layers]
    for ids in windows.split(8):
        model(ids)
        total = [sum_ + layer.ffn.load for sum_, layer in zip(total, model.layers, strict=True)]
    return [float(load.max() / load.float().mean()) for load in total]


@torch.no_grad()
def bounded_agreement(model: DenseModel, windows: Tensor, rows: int) -> dict[str, float]:
    """The token after each of windows [R, T], the second half of the model having run the last `rows` positions only.

    `same`: share of windows with the same likeliest token; `distance`: mean largest difference of two logprobs among
    the ten likeliest tokens.
    """
    same, distance = [], []
    for ids in windows.split(8):
        exact = model(ids).logits[:, -1].log_softmax(-1)
        bounded = model(ids, decoder_start=ids.shape[1] - rows).logits[:, -1].log_softmax(-1)
        same.append(exact.argmax(-1) == bounded.argmax(-1))
        likeliest = exact.topk(10, -1).indices
        distance.append((exact - bounded).gather(1, likeliest).abs().amax(-1))
    return {"same": float(torch.cat(same).float().mean()), "distance": float(torch.cat(distance).mean())}
