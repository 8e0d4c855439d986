"""What every script needs first: the tokenizer and the encoded text, made once in the work folder."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from training.corpus import read_documents, training_files
from training.tokens import encode_corpus, train_tokenizer

logger = logging.getLogger(__name__)

TOKENIZER, STREAM = "tokenizer.json", "stream.pt"
EVERY = 3  # the tokenizer learns from each third document


def load_tokenizer(data: Path, work: Path, vocab_size: int) -> Tokenizer:
    """The tokenizer of the work folder, trained on the text of `data` if there is none yet."""
    work.mkdir(parents=True, exist_ok=True)
    if not (work / TOKENIZER).exists():
        logger.info("training the tokenizer")
        documents = [document for path in training_files(data) for document in read_documents(path)]
        train_tokenizer(iter(documents[::EVERY]), vocab_size).save(str(work / TOKENIZER))
    return Tokenizer.from_file(str(work / TOKENIZER))


def prepared(data: Path, work: Path, vocab_size: int) -> tuple[Tokenizer, Tensor]:
    """(tokenizer, the training text as int16 [N])."""
    tokenizer = load_tokenizer(data, work, vocab_size)
    if not (work / STREAM).exists():
        logger.info("encoding the text")
        torch.save(encode_corpus(tokenizer, data), work / STREAM)
    return tokenizer, torch.load(work / STREAM)
