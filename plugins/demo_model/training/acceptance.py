"""How many drafts the backbone would accept, and how well the confidence head knows it, on the model's own text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from dense_v41 import DenseModel
from dense_v41.draft import DraftOutput
from torch import Tensor

from deepinfer_demo_model.spec import PAD

LENGTH = 256  # tokens of an opening and what follows, at most; half of it each
TOGETHER = 4  # texts in one forward
ANCHORS = 32  # at once
BINS = 20

Text = tuple[list[int], list[int]]  # what the model was given, and what it said


def acceptance(model: DenseModel, greedy: Sequence[Text], sampled: Sequence[Text]) -> dict[str, Any]:
    """Of texts that the model said greedily, and at temperature 1.

    `greedy` and `sampled` give, of the rounds whose text has a k-th token to draft, the share in which at least the
    first k drafts are accepted. `length` is what these shares make of an endless text: a round's accepted drafts and
    the one token after them. `calibration` is the expected error of the predicted share, over BINS bins, at
    temperature 1.
    """
    right, usable = _joined(_greedy_rounds(model, group) for group in grouped(greedy))
    shares = [float(right[usable[:, k], k].mean()) for k in range(right.shape[1])]
    kept, predicted, there = _joined(_sampled_rounds(model, group) for group in grouped(sampled))
    kept_shares = [float(kept[there[:, k], k].mean()) for k in range(kept.shape[1])]
    return {
        "rounds": len(right),
        "greedy": shares,
        "greedy_length": 1 + sum(shares),
        "sampled": kept_shares,
        "sampled_length": 1 + sum(kept_shares),
        "calibration": [
            calibration_error(predicted[there[:, k], k], kept[there[:, k], k]) for k in range(kept.shape[1])
        ],
    }


def _joined(groups: Iterable[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(torch.cat(part) for part in zip(*groups, strict=True))


def grouped(texts: Sequence[Text]) -> Iterator[list[Text]]:
    """Texts of like length together, each with a token to draft."""
    usable = sorted((text for text in texts if len(text[1]) > 1), key=lambda text: len(text[0]) + len(text[1]))
    for first in range(0, len(usable), TOGETHER):
        yield usable[first : first + TOGETHER]


def calibration_error(predicted: Tensor, happened: Tensor) -> float:
    """Mean distance of predicted [R] and observed [R] shares, over bins of the predicted ones."""
    bins = (predicted * BINS).long().clamp_max(BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.float64).index_add(0, bins, (predicted - happened).double())
    return float(gaps.abs().sum() / len(predicted))


@torch.no_grad()
def _greedy_rounds(model: DenseModel, texts: Sequence[Text]) -> tuple[Tensor, Tensor]:
    """(float [R, S], 1 where the first k drafts are the tokens that follow; bool [R, S], where there is a k-th)."""
    rounds = []
    for ids, anchors, taps, _, usable in anchor_groups(model, texts):
        draft = model.draft(taps, 0, anchors, ids[:, anchors + 1].unsqueeze(-1))
        places = anchors[:, None] + 2 + torch.arange(draft.tokens.shape[2], device=ids.device)
        right = (draft.tokens == ids[:, places]).float().cumprod(-1)
        there = usable[..., 0]
        rounds.append((right[there].cpu(), usable[there].cpu()))
    return _joined(rounds)


@torch.no_grad()
def _sampled_rounds(model: DenseModel, texts: Sequence[Text]) -> tuple[Tensor, Tensor, Tensor]:
    """(probability [R, S] that rejection sampling accepts the first k drafts, the confidence head's prediction of it,
    where there is a k-th token)."""
    rounds = []
    for ids, anchors, taps, logits, usable in anchor_groups(model, texts):
        draft, overlap = forced_round(model, ids, anchors, taps, logits)
        predicted, there = draft.confidence.sigmoid().cumprod(-1), usable[..., 0]
        rounds.append((overlap.cumprod(-1)[there].cpu(), predicted[there].cpu(), usable[there].cpu()))
    return _joined(rounds)


def forced_round(
    model: DenseModel, ids: Tensor, anchors: Tensor, taps: Tensor, logits: Tensor
) -> tuple[DraftOutput, Tensor]:
    """(drafts behind the tokens that were said, the probability [B, A, S] that each is accepted)."""
    places = anchors[:, None] + 1 + torch.arange(model.config.dspark_block_size, device=ids.device)
    draft = model.draft(taps, 0, anchors, ids[:, places])
    return draft, 1 - 0.5 * (draft.logits.softmax(-1) - logits[:, places].softmax(-1)).abs().sum(-1)


@torch.no_grad()
def anchor_groups(model: DenseModel, texts: Sequence[Text]) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
    """(ids [B, T], anchors [A], taps, logits, usable [B, A, S]): a draft is usable if its token is in what was said."""
    device, size = model.embed.weight.device, model.config.dspark_block_size
    rows = [given + answer for given, answer in texts]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (longest + size - len(row)) for row in rows], device=device)
    start = torch.tensor([len(given) for given, _ in texts], device=device)[:, None, None]
    end = torch.tensor([len(row) for row in rows], device=device)[:, None, None]
    output = model(ids)
    for anchors in torch.arange(longest - 2, device=device).split(ANCHORS):
        token = anchors[:, None] + 2 + torch.arange(size, device=device)
        usable = (anchors[:, None] >= start - 1) & (token < end)
        if usable.any():
            yield ids, anchors, output.taps, output.logits, usable
