"""The model's own continuations, on which its draft stages learn and are judged."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from dense_v41 import DenseModel
from tokenizers import Tokenizer
from torch import Tensor

from training.corpus import USER, prompt_of
from training.decode import continue_prompts
from training.tokens import encode

OPENING = 48  # tokens of a document without questions that the model is given
HEATS = (0.0, 1.0)  # temperatures are drawn between these


def openings(tokenizer: Tokenizer, documents: Sequence[str]) -> list[list[int]]:
    """The part of each document that the model is given: the question, or the first tokens."""
    ids = encode(tokenizer, [prompt_of(d)[0] if d.startswith(USER) else d[:1000] for d in documents])
    return [
        row[:-1] if document.startswith(USER) else row[:OPENING] for row, document in zip(ids, documents, strict=True)
    ]


def own_text(
    model: DenseModel, tokenizer: Tokenizer, documents: Sequence[str], count: int, length: int, seed: int
) -> Tensor:
    """int64 [count, length]: continuations of openings, at temperatures of HEATS. Longer documents are drawn more."""
    drawn = random.Random(seed).choices(documents, weights=[len(document) for document in documents], k=count)
    prompts = openings(tokenizer, drawn)
    heats = torch.rand(count, generator=torch.Generator().manual_seed(seed)) * (HEATS[1] - HEATS[0]) + HEATS[0]
    return continue_prompts(model, prompts, length, heats, seed)
