"""How many drafts the backbone would accept, and how well the confidence head knows it, on the model's own text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from dense_v41 import DenseModel
from torch import Tensor

from deepinfer_demo_model.spec import PAD

LENGTH = 256  # tokens of an opening and what follows, at most; half of it each
TOGETHER = 4  # texts in one forward
ANCHORS = 32  # at once
BINS = 20

Text = tuple[list[int], list[int]]  # what the model was given, and what it said


@dataclass(frozen=True, slots=True)
class Places:
    """Every place of one text where a round could begin [A], and its drafts [A, S]."""

    accepted: Tensor  # bool: the draft is accepted if the ones before it are
    there: Tensor  # bool: what was said has a token at the draft's place
    share: Tensor  # float: the probability that the first k drafts are accepted; nothing for greedy rounds
    predicted: Tensor  # float: the confidence head's prediction of it


def acceptance(model: DenseModel, greedy: Sequence[Text], sampled: Sequence[Text]) -> dict[str, Any]:
    """Of texts that the model said greedily, and at temperature 1.

    Rounds follow each other as in decoding: each begins behind the accepted drafts of the one before and the one token
    after them. `greedy` and `sampled` give, of the rounds whose text has a k-th token to draft, the share in which at
    least the first k drafts are accepted; `length` is a round's mean number of tokens in a text without end.
    `calibration` is the expected error of the predicted share, over BINS bins, at every place of the texts sampled.
    """
    right = [rounds(place) for place in _greedy_places(model, greedy)]
    places = list(_sampled_places(model, sampled))
    kept = [rounds(place) for place in places]
    return {
        "greedy": _shares(right),
        "sampled": _shares(kept),
        "calibration": [_calibration(places, k) for k in range(model.config.dspark_block_size)],
    }


def rounds(places: Places) -> tuple[Tensor, Tensor]:
    """(whether the first k drafts are accepted [R, S], whether there is a k-th token [R, S]) of one text's rounds."""
    first = places.accepted.cumprod(1).bool() & places.there
    at, chosen = 0, []
    while at < len(first) and places.there[at, 0]:
        chosen.append(at)
        at += int(first[at].sum()) + 1
    return first[chosen], places.there[chosen]


def _shares(texts: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Any]:
    first, there = (torch.cat(part) for part in zip(*texts, strict=True))
    shares = [float(first[there[:, k], k].float().mean()) for k in range(first.shape[1])]
    return {"rounds": len(first), "shares": shares, "length": 1 + sum(shares)}


def _calibration(places: Sequence[Places], k: int) -> float:
    there = [one.there[:, k] for one in places]
    predicted = torch.cat([one.predicted[here, k] for one, here in zip(places, there, strict=True)])
    return calibration_error(
        predicted, torch.cat([one.share[here, k] for one, here in zip(places, there, strict=True)])
    )


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
def _greedy_places(model: DenseModel, texts: Sequence[Text]) -> Iterator[Places]:
    for group in grouped(texts):
        parts = []
        for ids, anchors, taps, _, there in anchor_groups(model, group):
            draft = model.draft(taps, 0, anchors, ids[:, anchors + 1].unsqueeze(-1))
            right = draft.tokens == ids[:, _drafted(anchors, draft.tokens.shape[2])]
            parts.append((right, there, right.float(), right.float()))
        yield from _by_text(parts)


@torch.no_grad()
def _sampled_places(model: DenseModel, texts: Sequence[Text]) -> Iterator[Places]:
    """A token x of a text drawn from p is an accepted draft of q with probability min(1, q(x) / p(x))."""
    generator = torch.Generator().manual_seed(0)
    for group in grouped(texts):
        parts = []
        for ids, anchors, taps, logits, there in anchor_groups(model, group):
            size = model.config.dspark_block_size
            places = anchors[:, None] + 1 + torch.arange(size, device=ids.device)
            draft = model.draft(taps, 0, anchors, ids[:, places])
            q, p = draft.logits.softmax(-1), logits[:, places].softmax(-1)
            token = ids[:, _drafted(anchors, size)].unsqueeze(-1)
            chance = (q.gather(-1, token) / p.gather(-1, token)).squeeze(-1).clamp_max(1).cpu()
            overlap = 1 - 0.5 * (q - p).abs().sum(-1).cpu()
            before = torch.cat((torch.ones_like(chance[..., :1]), chance[..., :-1].cumprod(-1)), -1)
            accepted = torch.rand(chance.shape, generator=generator) < chance
            parts.append((accepted, there, before * overlap, draft.confidence.sigmoid().cumprod(-1)))
        yield from _by_text(parts)


def _drafted(anchors: Tensor, size: int) -> Tensor:
    """The places [A, S] of the tokens that are drafted after anchors [A]."""
    return anchors[:, None] + 2 + torch.arange(size, device=anchors.device)


def _by_text(parts: Sequence[tuple[Tensor, ...]]) -> Iterator[Places]:
    """One Places for each text of parts [B, A, S], from the first anchor with a token to draft on."""
    for row in zip(
        *(torch.cat([tensor.cpu() for tensor in part], 1) for part in zip(*parts, strict=True)), strict=True
    ):
        begun = row[1][:, 0].cumsum(0) > 0
        yield Places(*(tensor[begun] for tensor in row))


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
