"""A request while it runs, on the host: what its answers share, and the state of each answer.

The scheduler owns slots, blocks and the committed tokens it plans with; outputs are assembled in `output.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deepinfer_core.engine.feed import TextFeed
from deepinfer_core.engine.stops import StopHit, StopSearch
from deepinfer_core.text.detokenize import Detokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deepinfer_core.api.outputs import CompletionOutput, FinishReason
    from deepinfer_core.engine.admission import Admitted
    from deepinfer_core.interfaces.constraint import Matcher
    from deepinfer_core.text.tokenizer import Tokenizer


class TokenScore(NamedTuple):
    """One token's logprob and its most likely alternatives, best first; ids below 0 are none."""

    logprob: float
    rank: int
    top_ids: NDArray[np.integer]
    top_logprobs: NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an answer ended."""

    reason: FinishReason
    stop: int | str | None = None  # the stop token or string to report; None for end-of-sequence
    by_token: bool = False  # the answer's last token is a stop token
    hit: StopHit | None = None  # where a stop string cuts the text


class PromptScores:
    """The logprobs of a prompt's tokens, filled chunk by chunk; the first token has none."""

    def __init__(self, length: int, k: int) -> None:
        self.k = k
        self.logprob = np.full(length, np.nan, dtype=np.float32)
        self.rank = np.zeros(length, dtype=np.int32)
        self.top_ids = np.full((length, k), -1, dtype=np.int32)
        self.top_logprobs = np.full((length, k), -np.inf, dtype=np.float32)

    def store(
        self,
        first: int,
        logprob: NDArray[np.float32],
        rank: NDArray[np.int32],
        top_ids: NDArray[np.int64],
        top_logprobs: NDArray[np.float32],
    ) -> None:
        """Scores of the tokens at positions `first` and on; columns beyond k belong to other requests of the step."""
        span = slice(first, first + len(logprob))
        self.logprob[span] = logprob
        self.rank[span] = rank
        self.top_ids[span] = top_ids[:, : self.k]
        self.top_logprobs[span] = top_logprobs[:, : self.k]


class Sequence:
    """One answer: its tokens so far and whatever must be remembered to end it at the right place."""

    __slots__ = (
        "detokenizer",
        "feed",
        "handle",
        "ids",
        "index",
        "matcher",
        "owner",
        "plain",
        "scores",
        "scores_prompt",
        "search",
    )

    def __init__(
        self, handle: int, index: int, owner: LiveRequest, tokenizer: Tokenizer | None, matcher: Matcher | None
    ) -> None:
        """`handle` names the answer to the scheduler; `index` is its place among the request's n."""
        params = owner.admitted.params
        self.handle = handle
        self.index = index
        self.owner = owner
        self.matcher = matcher
        self.scores_prompt = index == 0 and owner.prompt_scores is not None  # once is enough for all n
        self.ids: list[int] = []
        self.scores: list[TokenScore] | None = None if params.logprobs is None else []
        self.search: StopSearch | None = None  # together with the detokeniser, only where there are stop strings
        self.detokenizer: Detokenizer | None = None
        if params.stop:
            assert tokenizer is not None, "admission refuses stop strings without a tokenizer"
            self.search = StopSearch(params.stop)
            self.detokenizer = Detokenizer(tokenizer, params.skip_special_tokens)
        self.feed: TextFeed | None = None
        if owner.admitted.request.stream and tokenizer is not None:
            self.feed = TextFeed(tokenizer, params)
        # A token that ends nothing is then only remembered.
        self.plain = self.scores is None and self.search is None and self.feed is None and matcher is None


class LiveRequest:
    """What the n answers of a request share. `key` is its name within the engine, unique for ever."""

    __slots__ = (
        "admitted",
        "arrived",
        "cached_tokens",
        "first_token",
        "key",
        "outputs",
        "preemptions",
        "prompt_scores",
        "queued",
        "replayed",
        "running",
    )

    def __init__(self, key: int, admitted: Admitted, arrived: float) -> None:
        """`arrived`: time.perf_counter() when the request came."""
        params = admitted.params
        self.key = key
        self.admitted = admitted
        self.arrived = arrived
        self.queued: float | None = None  # seconds from arrival to the first slot
        self.first_token: float | None = None  # seconds since arrival
        self.preemptions = 0
        self.cached_tokens: int | None = None  # that the first answer's first stay was spared; None: not yet begun
        self.replayed = False  # whether any answer began at a prefix hit, in any of its stays
        self.running: dict[int, Sequence] = {}  # by scheduler handle
        self.outputs: dict[int, CompletionOutput] = {}  # finished answers by index
        self.prompt_scores: PromptScores | None = None
        if params.prompt_logprobs is not None:
            self.prompt_scores = PromptScores(len(admitted.prompt), params.prompt_logprobs)
