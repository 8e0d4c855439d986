"""What every script needs first: the tokenizer and the encoded text, made once in the work folder."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from training.corpus import training_documents
from training.shape import Recipe
from training.tokens import encode_corpus, train_tokenizer

logger = logging.getLogger(__name__)

TOKENIZER, STREAM = "tokenizer.json", "stream.pt"
EVERY = 3  # the tokenizer learns from each third document


def load_tokenizer(data: Path, work: Path, recipe: Recipe) -> Tokenizer:
    """The tokenizer of the work folder, trained on the text of `data` if there is none yet."""
    work.mkdir(parents=True, exist_ok=True)
    if not (work / TOKENIZER).exists():
        logger.info("training the tokenizer")
        documents = training_documents(data, recipe.documents)
        train_tokenizer(iter(documents[::EVERY]), recipe.spec.vocab_size).save(str(work / TOKENIZER))
    return tokenizer_of(work, recipe)


def tokenizer_of(work: Path, recipe: Recipe) -> Tokenizer:
    """The work folder's tokenizer. Raises `ValueError` where it is that of another recipe."""
    tokenizer = Tokenizer.from_file(str(work / TOKENIZER))
    if tokenizer.get_vocab_size() != recipe.spec.vocab_size:
        raise ValueError(
            f"{work} has a tokenizer of {tokenizer.get_vocab_size()} tokens and this recipe one of "
            f"{recipe.spec.vocab_size}: give --tiny in every step or in none, or another work folder"
        )
    return tokenizer


def prepared(data: Path, work: Path, recipe: Recipe) -> tuple[Tokenizer, Tensor]:
    """(tokenizer, the training text as int16 [N])."""
    tokenizer = load_tokenizer(data, work, recipe)
    if not (work / STREAM).exists():
        logger.info("encoding the text")
        torch.save(encode_corpus(tokenizer, training_documents(data, recipe.documents)), work / STREAM)
    return tokenizer, torch.load(work / STREAM)
