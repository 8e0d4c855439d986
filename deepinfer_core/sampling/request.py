"""What sampling keeps of one request: its parameters resolved to token ids, checked once at admission.

Nothing here touches a device, and texts are encoded by the caller's tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.api.errors import RequestError

if TYPE_CHECKING:
    from deepinfer_core.api.params import SamplingParams

MAX_BAD_WORD_TOKENS = 8
BAD_WORD_HISTORY = MAX_BAD_WORD_TOKENS - 1  # last generated tokens that bad words look at


@dataclass(frozen=True, slots=True, eq=False)
class RequestSampling:
    """A request's sampling parameters in the model's terms. One for all n answers; make it with `request_sampling`."""

    params: SamplingParams
    seed: int  # 0 .. 2**64 - 1, given or drawn
    bias_tokens: NDArray[np.int64]  # [b] distinct, with bias_values float32 [b]
    bias_values: NDArray[np.float32]
    token_mask: NDArray[np.int32] | None  # [ceil(V/32)] packed, 1 where allowed; None: every token
    stop_tokens: NDArray[np.int64]  # ids that may not come before min_tokens; empty where min_tokens is 0
    bad_tokens: NDArray[np.int64]  # [w] last tokens of the bad words of two tokens or more
    bad_prefixes: NDArray[np.int64]  # [w, BAD_WORD_HISTORY] the tokens before it, nearest first, then -1
    processors: tuple[str, ...]  # plugin stages that the request asked for

    @property
    def penalised(self) -> bool:
        """Whether the request needs token counts."""
        p = self.params
        return p.repetition_penalty != 1.0 or p.presence_penalty != 0.0 or p.frequency_penalty != 0.0


@dataclass(frozen=True, slots=True, eq=False)
class SlotSampling:
    """A slot given to a sequence, new or resumed: what `SamplingTable.prepare` needs to set the slot's state."""

    slot: int
    request: RequestSampling
    sample: int  # index of the answer among the request's n
    prompt: NDArray[np.int32]
    output: NDArray[np.int32]  # tokens generated and committed before now; empty unless resumed


def request_sampling(
    params: SamplingParams,
    *,
    seed: int,
    vocab_size: int,
    stop_token_ids: Iterable[int] = (),
    bad_words: Sequence[Sequence[int]] = (),
    processors: Sequence[str] = (),
) -> RequestSampling:
    """Resolve and check a request's parameters.

    `vocab_size` counts the tokenizer's ids: those that may be sampled. `stop_token_ids` are all ids that would end an
    answer (end-of-sequence too, unless ignored); `bad_words` are token sequences, see `bad_word_tokens`.
    Raises `RequestError` for an id outside the vocabulary, a bad word that is too long, and parameters that
    together allow no token.
    """
    _check_ids("logit_bias", params.logit_bias, vocab_size)
    _check_ids("allowed_token_ids", params.allowed_token_ids or (), vocab_size)
    _check_ids("bad_words", (token for word in bad_words for token in word), vocab_size)
    _check_alternatives(params, vocab_size)
    for word in bad_words:
        if not 0 < len(word) <= MAX_BAD_WORD_TOKENS:
            raise RequestError(f"an entry of bad_words is {len(word)} tokens long: give 1 to {MAX_BAD_WORD_TOKENS}")
    phrases = [word for word in bad_words if len(word) > 1]
    stops = {t for t in stop_token_ids if 0 <= t < vocab_size} if params.min_tokens > 0 else set()
    allowed = _allowed(params, [word[0] for word in bad_words if len(word) == 1], vocab_size)
    _check_possible(allowed, sorted(stops))
    return RequestSampling(
        params=params,
        seed=seed,
        bias_tokens=np.array(list(params.logit_bias.keys()), np.int64),
        bias_values=np.array(list(params.logit_bias.values()), np.float32),
        token_mask=None if allowed.all() else pack_mask(allowed),
        stop_tokens=np.array(sorted(stops), np.int64),
        bad_tokens=np.array([word[-1] for word in phrases], np.int64),
        bad_prefixes=_prefixes(phrases),
        processors=tuple(processors),
    )


def bad_word_tokens(words: Sequence[str], encode: Callable[[str], Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """The token sequences that spell each word, at the start of a text and after a space.

    `encode` must add no special tokens. A spelling that ends in another spelling of the same word bans nothing more
    and is left out.
    """
    spellings: dict[tuple[int, ...], None] = {}
    for word in words:
        plain, spaced = tuple(encode(word.lstrip() or word)), tuple(encode(" " + word.lstrip()))
        spellings[plain] = None
        if spaced[-len(plain) :] != plain:
            spellings[spaced] = None
    return tuple(spelling for spelling in spellings if spelling)


def pack_mask(allowed: NDArray[np.bool_]) -> NDArray[np.int32]:
    """bool [V] -> int32 [ceil(V/32)]: token v is bit v & 31 of word v >> 5."""
    padded = np.zeros(-(-len(allowed) // 32) * 32, dtype=bool)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view("<i4").astype(np.int32)


def _prefixes(phrases: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    prefixes = np.full((len(phrases), BAD_WORD_HISTORY), -1, np.int64)
    for row, phrase in zip(prefixes, phrases, strict=True):
        row[: len(phrase) - 1] = phrase[-2::-1]
    return prefixes


def _check_ids(field: str, ids: Iterable[int], vocab_size: int) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise RequestError(f"{field} names token {token}: this model's tokens are 0 to {vocab_size - 1}")


def _check_alternatives(params: SamplingParams, vocab_size: int) -> None:
    for field, count in (("logprobs", params.logprobs), ("prompt_logprobs", params.prompt_logprobs)):
        if count is not None and count > vocab_size:
            raise RequestError(f"{field} = {count} is not allowed: this model has {vocab_size} tokens; ask for fewer")


def _allowed(params: SamplingParams, banned: list[int], vocab_size: int) -> NDArray[np.bool_]:
    if params.allowed_token_ids is None:
        allowed = np.ones(vocab_size, dtype=bool)
    else:
        allowed = np.zeros(vocab_size, dtype=bool)
        allowed[list(params.allowed_token_ids)] = True
    allowed[banned] = False
    return allowed


def _check_possible(allowed: NDArray[np.bool_], stops: list[int]) -> None:
    if not allowed.any():
        raise RequestError("allowed_token_ids and bad_words leave no token to sample: allow one that is not banned")
    possible = allowed.copy()
    possible[stops] = False
    if not possible.any():
        raise RequestError(
            "min_tokens forbids every token that allowed_token_ids and bad_words leave, as each of them would end the "
            "answer: allow another token or set min_tokens to 0"
        )
