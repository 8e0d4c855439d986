"""Text to token ids: training the tokenizer, and the stream of ids that the model is trained on.

Special tokens and their ids are those of the family, digits are single tokens.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from deepinfer_demo_model.spec import BOS, EOS
from deepinfer_demo_model.tokenizer_file import PRE_TOKENS, SPECIAL_TOKENS
from training.corpus import rendered

SINGLE_DIGITS = r"\p{N}"
BATCH = 4000  # documents encoded at once


def train_tokenizer(documents: Iterable[str], vocab_size: int) -> Tokenizer:
    """Byte-level BPE over the documents' own text, behind the family's special tokens."""
    tokenizer = Tokenizer(models.BPE())
    patterns = (SINGLE_DIGITS, *PRE_TOKENS[1:])
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(text, special=hidden, normalized=False) for text, hidden in SPECIAL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(f"the text gives {tokenizer.get_vocab_size()} tokens, {vocab_size} are wanted: use more text")
    return tokenizer


def encode(tokenizer: Tokenizer, documents: Sequence[str]) -> list[list[int]]:
    """Ids of whole documents: begin of sentence, the text, end of sentence once."""
    encodings = tokenizer.encode_batch([rendered(document) for document in documents])
    return [[BOS, *e.ids, *([] if e.ids and e.ids[-1] == EOS else [EOS])] for e in encodings]


def encode_corpus(tokenizer: Tokenizer, documents: Sequence[str], seed: int = 0) -> Tensor:
    """int16 [N]: the documents, shuffled, one after the other."""
    documents = list(documents)
    random.Random(seed).shuffle(documents)
    parts = []
    for first in range(0, len(documents), BATCH):
        ids = encode(tokenizer, documents[first : first + BATCH])
        parts.append(np.fromiter((token for row in ids for token in row), dtype=np.int16))
    return torch.from_numpy(np.concatenate(parts))


class Windows:
    """Batches of windows of a stream: every window once an epoch, in an order that seed and epoch alone decide."""

    def __init__(self, stream: Tensor, length: int, batch: int, seed: int = 0) -> None:
        """`stream` lives on the device where the batches are wanted. A window has `length` + 1 tokens."""
        self.stream, self.length, self.batch, self.seed = stream, length, batch, seed
        self.steps_per_epoch = (len(stream) - length - 1) // length // batch
        if self.steps_per_epoch < 1:
            raise ValueError(f"a stream of {len(stream)} tokens has no batch of {batch} windows of {length}")
        self._epoch = -1
        self._order = torch.empty(0)

    def __getitem__(self, step: int) -> Tensor:
        """int64 [batch, length + 1] of any step from 0."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._starts(epoch)
        starts = self._order[place * self.batch : (place + 1) * self.batch]
        return self.stream[starts[:, None] + torch.arange(self.length + 1, device=self.stream.device)].long()

    def _starts(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1000003 + epoch)
        windows = (len(self.stream) - self.length - 1) // self.length
        shift = int(torch.randint(0, self.length, (), generator=generator))
        starts = torch.randperm(windows - 1, generator=generator) * self.length + shift
        return starts.to(self.stream.device)
