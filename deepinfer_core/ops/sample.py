"""Sampling ops: token masks, penalties, the draw, logprobs and the acceptance of drafts.

Which stages a row needs, and in what order, is `sampling/`'s business; here each is a pure function of tensors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import OpSpec, Tolerance
from deepinfer_core.ops import sample_cases as cases
from deepinfer_core.ops.order import best_first, best_of
from deepinfer_core.ops.philox import gumbel_noise, gumbel_noise_at

GREEDY_BELOW = 1e-5  # temperatures below this are greedy
_MASS_BITS = 34  # masses are whole multiples of 2**-34 of the best token's: sums of 2**18 of them are exact in float64


def apply_token_mask(logits: Tensor, mask: Tensor) -> Tensor:
    """float32 [N,V] with -inf where bit v & 31 of word v >> 5 of mask int32 [N, ceil(V/32)] is 0."""
    bits = torch.arange(32, dtype=torch.int32, device=mask.device)
    allowed = ((mask[..., None] >> bits) & 1).flatten(1)[:, : logits.shape[1]]
    return logits.masked_fill(allowed == 0, -math.inf)


def apply_penalties(
    logits: Tensor, prompt_seen: Tensor, counts: Tensor, repetition: Tensor, presence: Tensor, frequency: Tensor
) -> Tensor:
    """Penalise tokens seen before: float32 [N,V]; a finite logit never becomes +inf.

    prompt_seen bool [N,V]; counts int32 [N,V] of generated tokens. Repetition (Keskar et al. 2019) sees both: it
    divides positive logits and multiplies others. Frequency (a generated token's count times it) and presence (once)
    are subtracted afterwards and see generated tokens only.
    """
    seen = prompt_seen | (counts > 0)
    factor = repetition[:, None]
    repeated = torch.where(logits > 0, logits / factor, logits * factor).clamp(max=torch.finfo(torch.float32).max)
    return torch.where(seen, repeated, logits) - frequency[:, None] * counts - presence[:, None] * (counts > 0)


def sample_tokens(
    logits: Tensor,
    temperature: Tensor | None,
    top_k: Tensor | None,
    top_p: Tensor | None,
    min_p: Tensor | None,
    seed: Tensor,
    sample: Tensor,
    position: Tensor,
    max_candidates: int | None = None,
) -> Tensor:
    """Draw one token a row: int64 [N], the argmax of (logit - best logit) / temperature + Gumbel over what the
    filters keep, in float32, equal scores to the lower id. Rows with temperature < 1e-5 take the best logit.

    logits float32 [N,V]; temperature float32, top_k integer (below 1 or above V: off), top_p float64 (1: off), min_p
    float32 (0: off), seed int64, sample and position integers, all [N]. None is "off in every row" (for temperature:
    greedy in every row), so that its work is left out. `max_candidates` >= top_k >= 1 in every row says how many of
    the best logits need to be looked at. Neither changes a row's token.
    A row whose best logit is -inf, +inf or NaN gives some id below V.
    """
    if temperature is None:
        return logits.argmax(dim=-1)
    scores, tokens = _filtered(logits, temperature, top_k, top_p, min_p, max_candidates)
    if tokens is None:
        drawn = (scores + gumbel_noise(seed, sample, position, logits.shape[1])).argmax(dim=-1)
    elif max_candidates is None:
        drawn = best_of(scores + gumbel_noise(seed, sample, position, logits.shape[1]).gather(1, tokens), tokens)
    else:
        drawn = best_of(scores + gumbel_noise_at(seed, sample, position, tokens), tokens)
    best = logits.argmax(dim=-1) if tokens is None else tokens[:, 0]
    return torch.where(temperature < GREEDY_BELOW, best, drawn)


def filtered_scores(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """What `sample_tokens` draws from, in order of id: float32 [N,V], -inf where a filter removed the token. A greedy
    row keeps its logits."""
    scores, tokens = _filtered(logits, temperature, top_k, top_p, min_p, None)
    if tokens is not None:
        scores = torch.full_like(scores, -math.inf).scatter(1, tokens, scores)
    return torch.where((temperature < GREEDY_BELOW)[:, None], logits, scores)


def top_logprobs(logits: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(logprob float32 [N], rank int32 [N], ids int64 [N,k], values float32 [N,k]) under softmax of logits [N,V].

    The rank of token int64 [N] is 1 + the number of tokens with a larger logit, or an equal one and a lower id; ids are
    in that order. k <= V.
    """
    logprobs = torch.log_softmax(logits.double(), dim=-1).float()  # float32 sums over a vocabulary are 2e-5 off
    chosen = logits.gather(1, tokens[:, None])
    lower = torch.arange(logits.shape[1], device=logits.device) < tokens[:, None]
    rank = 1 + ((logits > chosen) | ((logits == chosen) & lower)).sum(dim=-1, dtype=torch.int32)
    _, ids = best_first(logits, k)
    return logprobs.gather(1, tokens[:, None]).squeeze(1), rank, ids, logprobs.gather(1, ids)


def verify_drafts(target: Tensor, drafts: Tensor, num_drafts: Tensor) -> Tensor:
    """int32 [B]: tokens that hold, which are the leading drafts equal to the target's, and one token more.

    target int64 [B, 1+d]: the token that the model draws at each position; drafts int64 [B, d], of which the first
    num_drafts [B] of a row count.
    """
    exists = torch.arange(drafts.shape[1], device=drafts.device) < num_drafts[:, None]
    accepted = (exists & (target[:, :-1] == drafts)).to(torch.int32).cumprod(dim=-1, dtype=torch.int32)
    return 1 + accepted.sum(dim=-1, dtype=torch.int32)


def _filtered(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor | None,
    top_p: Tensor | None,
    min_p: Tensor | None,
    max_candidates: int | None,
) -> tuple[Tensor, Tensor | None]:
    """(scores float32 [N,m], -inf where filtered; their token ids int64 [N,m], best first, or None: in order of id)."""
    if top_k is None and top_p is None:
        values, tokens, best = logits, None, logits.amax(dim=-1, keepdim=True)
    else:
        values, tokens = best_first(logits, max_candidates or logits.shape[1])
        best = values[:, :1]
    divisor = torch.where(temperature < GREEDY_BELOW, 1.0, temperature)[:, None]
    scores = (values - best) / divisor
    if top_k is not None:
        limit = torch.where(top_k < 1, logits.shape[1], top_k)[:, None]
        scores = scores.masked_fill(torch.arange(scores.shape[1], device=scores.device) >= limit, -math.inf)
    if top_p is not None:
        scores = scores.masked_fill(~_nucleus(scores, top_p), -math.inf)
    if min_p is not None:
        scores = scores.masked_fill(scores < min_p.double().log().float()[:, None], -math.inf)
    return scores, tokens


def _nucleus(scores: Tensor, top_p: Tensor) -> Tensor:
    """bool [N,m]: the shortest prefix of scores (best first, the best 0) whose softmax mass reaches top_p.

    Masses are integers: their sums have one value in any order of summation, so a row's cut is the same on any device
    and in any batch.
    """
    mass = (scores.double().exp() * 2.0**_MASS_BITS).round().long()
    through = mass.cumsum(dim=-1)
    target = top_p.double()[:, None] * through[:, -1:].double()
    return ((through - mass).double() < target) | (top_p >= 1)[:, None]


_EXACT = {"float32": Tolerance(0.0, 0.0)}

SPECS: tuple[OpSpec, ...] = (
    OpSpec("apply_token_mask", "sample", apply_token_mask, cases.token_mask, _EXACT),
    OpSpec("apply_penalties", "sample", apply_penalties, cases.penalties, {"float32": Tolerance(1e-6, 1e-6)}),
    OpSpec(
        "sample_tokens",
        "sample",
        sample_tokens,
        cases.sampling,
        _EXACT,
        notes="Tokens are part of the contract: a kernel draws what the reference draws, and knows no other row.",
    ),
    OpSpec("top_logprobs", "sample", top_logprobs, cases.logprobs, {"float32": Tolerance(1e-5, 1e-5)}),
    OpSpec("verify_drafts", "sample", verify_drafts, cases.drafts, _EXACT),
)
