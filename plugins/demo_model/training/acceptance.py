"""How many drafts the backbone would accept, and how well the confidence head knows it, on the model's own text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from dense_v41 import DenseModel
from torch import Tensor

from deepinfer_demo_model.spec import PAD

LENGTH = 192  # tokens of an opening and what follows, at most
TOGETHER = 4  # texts in one forward
ANCHORS = 32  # at once
BINS = 20

Text = tuple[list[int], list[int]]  # what the model was given, and what it said


def acceptance(model: DenseModel, greedy: Sequence[Text], sampled: Sequence[Text]) -> dict[str, Any]:
    """Of texts that the model said greedily, and at temperature 1.

    `greedy` and `sampled` give the share of rounds in which at least the first k drafts are accepted; a round's
    `length` counts its accepted drafts and the one token after them. `calibration` is the expected error of the
    predicted share, over BINS bins, at temperature 1.
    """
    right = torch.cat([_greedy_rounds(model, group) for group in grouped(greedy)])
    rounds = [_sampled_rounds(model, group) for group in grouped(sampled)]
    kept, predicted = (torch.cat(part) for part in zip(*rounds, strict=True))
    return {
        "rounds": len(right),
        "greedy": right.mean(0).tolist(),
        "greedy_length": 1 + float(right.sum(-1).mean()),
        "sampled": kept.mean(0).tolist(),
        "sampled_length": 1 + float(kept.sum(-1).mean()),
        "calibration": [calibration_error(predicted[:, k], kept[:, k]) for k in range(kept.shape[1])],
    }


def grouped(texts: Sequence[Text]) -> Iterator[list[Text]]:
    """Texts of like length together, longer than one round."""
    usable = sorted((text for text in texts if len(text[1]) > 7), key=lambda text: len(text[0]) + len(text[1]))
    for first in range(0, len(usable), TOGETHER):
        yield usable[first : first + TOGETHER]


def calibration_error(predicted: Tensor, happened: Tensor) -> float:
    """Mean distance of predicted [R] and observed [R] shares, over bins of the predicted ones."""
    bins = (predicted * BINS).long().clamp_max(BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.float64).index_add(0, bins, (predicted - happened).double())
    return float(gaps.abs().sum() / len(predicted))


@torch.no_grad()
def _greedy_rounds(model: DenseModel, texts: Sequence[Text]) -> Tensor:
    """float [R, S]: 1 where the first k drafts are the tokens that follow."""
    rounds = []
    for ids, anchors, taps, _, usable in anchor_groups(model, texts):
        draft = model.draft(taps, 0, anchors, ids[:, anchors + 1].unsqueeze(-1))
        places = anchors[:, None] + 2 + torch.arange(draft.tokens.shape[2], device=ids.device)
        right = (draft.tokens == ids[:, places]).float().cumprod(-1)
        rounds.append(right[usable])
    return torch.cat(rounds).cpu()


@torch.no_grad()
def _sampled_rounds(model: DenseModel, texts: Sequence[Text]) -> tuple[Tensor, Tensor]:
    """(probability [R, S] that rejection sampling accepts the first k drafts, the confidence head's prediction)."""
    kept, predicted = [], []
    for ids, anchors, taps, logits, usable in anchor_groups(model, texts):
        places = anchors[:, None] + 1 + torch.arange(model.config.dspark_block_size, device=ids.device)
        draft = model.draft(taps, 0, anchors, ids[:, places])
        overlap = 1 - 0.5 * (draft.logits.softmax(-1) - logits[:, places].softmax(-1)).abs().sum(-1)
        kept.append(overlap.cumprod(-1)[usable])
        predicted.append(draft.confidence.sigmoid().cumprod(-1)[usable])
    return torch.cat(kept).cpu(), torch.cat(predicted).cpu()


@torch.no_grad()
def anchor_groups(model: DenseModel, texts: Sequence[Text]) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
    """(ids [B, T], anchors [A], taps, logits, usable [B, A]): a round is usable if all of it is in what was said."""
    device, size = model.embed.weight.device, model.config.dspark_block_size
    rows = [given + answer for given, answer in texts]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], device=device)
    start = torch.tensor([len(given) for given, _ in texts], device=device).unsqueeze(1)
    end = torch.tensor([len(row) for row in rows], device=device).unsqueeze(1)
    output = model(ids)
    for anchors in torch.arange(longest - size - 1, device=device).split(ANCHORS):
        usable = (anchors >= start - 1) & (anchors + size + 1 < end)
        if usable.any():
            yield ids, anchors, output.taps, output.logits, usable
