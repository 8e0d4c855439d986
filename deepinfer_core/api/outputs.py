"""What comes back: one RequestOutput a request, answers or an error, never both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from deepinfer_core.api.errors import DeepInferError

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class Logprob:
    """One token's log-probability under the model. The most likely token has rank 1; `text` is its own decoding."""

    token_id: int
    logprob: float
    rank: int
    text: str


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The chosen token of one position, and the most likely alternatives in order (the chosen may be among them)."""

    chosen: Logprob
    top: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One answer. `token_ids` and `logprobs` end with the token that ended it, a stop token included; `text` ends there
    too, without the stop string or stop token unless `include_stop` keeps it."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: int | str | None = None  # the stop token or string that ended it; None for end-of-sequence and length
    logprobs: tuple[TokenLogprobs, ...] | None = None
    cumulative_logprob: float | None = None


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """Times in seconds since the request arrived."""

    first_token: float  # `finished` where there was none
    finished: float
    preemptions: int = 0
    queued: float = 0.0  # until a slot was free; `finished` where none was given


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """The outcome of one request. With `error`, `outputs` is empty."""

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...] = ()
    error: DeepInferError | None = None
    seed: int | None = None  # the seed that was used, given or drawn
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None  # the first position has none
    num_cached_tokens: int = 0  # prompt tokens that were not computed, because an earlier request had
    prefill: Literal["bounded", "exact"] = "bounded"
    replay: Literal["exact", "bounded"] | None = None  # how sliding windows were rebuilt at a prefix hit; None: no hit
    metrics: RequestMetrics | None = None
    warnings: tuple[str, ...] = field(default=())
