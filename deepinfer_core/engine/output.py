"""From committed tokens to outputs: where an answer ends, its text and logprobs, and the request's RequestOutput."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING, Literal

import numpy as np

from deepinfer_core.api.errors import DeepInferError, GenerationError
from deepinfer_core.api.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput, TokenLogprobs
from deepinfer_core.engine.sequence import Ending, LiveRequest, PromptScores, Sequence, TokenScore
from deepinfer_core.interfaces.scheduler import FinishCode

if TYPE_CHECKING:
    from deepinfer_core.engine.admission import Admitted
    from deepinfer_core.engine.request import Request
    from deepinfer_core.text.tokenizer import Tokenizer


def extend(sequence: Sequence, tokens: Items[int], scores: Items[TokenScore] | None, code: FinishCode) -> Ending | None:
    """Append a step's committed tokens; what ended the answer, if anything did.

    `code` is the scheduler's verdict on the last of `tokens`. A stop string that is completed earlier wins, and the
    tokens after it are dropped: the answer is the same as if the tokens had come one by one.
    """
    kept, ending = len(tokens), _verdict(sequence, tokens, code)
    if sequence.search is not None:
        kept, ending = _search(sequence, tokens, ending)
    sequence.ids.extend(tokens[:kept])
    if sequence.scores is not None:
        assert scores is not None, "a request with logprobs was sampled without"
        sequence.scores.extend(scores[:kept])
    if sequence.matcher is not None:
        by_token = ending is not None and ending.by_token
        sequence.matcher.advance(tokens[: kept - by_token])
        if ending is None and sequence.matcher.finished:
            ending = Ending("stop")
    return ending


def _verdict(sequence: Sequence, tokens: Items[int], code: FinishCode) -> Ending | None:
    if code == FinishCode.STOP:
        token = tokens[-1]
        return Ending("stop", None if token in sequence.owner.admitted.eos_token_ids else token, by_token=True)
    return Ending("length") if code == FinishCode.LENGTH else None


def _search(sequence: Sequence, tokens: Items[int], ending: Ending | None) -> tuple[int, Ending | None]:
    """Look for stop strings token by token: how many tokens are kept, and what ended the answer."""
    assert sequence.search is not None
    assert sequence.detokenizer is not None
    params = sequence.owner.admitted.params
    for place, token in enumerate(tokens):
        if ending is not None and ending.by_token and place == len(tokens) - 1:
            if params.include_stop:
                sequence.search.push(sequence.detokenizer.push([token]), counts=False)
            break
        counts = len(sequence.ids) + place >= params.min_tokens
        hit = sequence.search.push(sequence.detokenizer.push([token]), counts)
        if hit is not None:
            return place + 1, Ending("stop", hit.stop, hit=hit)
    return len(tokens), ending


class OutputWriter:
    """Makes outputs of finished answers. Without a tokenizer texts are empty.

    Whatever a tokenizer raises on an answer passes through: the engine makes it that request's error.
    """

    def __init__(self, tokenizer: Tokenizer | None, replay: Literal["exact", "bounded"] = "exact") -> None:
        """`replay`: how prefix hits rebuild sliding windows."""
        self._tokenizer = tokenizer
        self._replay = replay

    def completion(self, sequence: Sequence, ending: Ending) -> CompletionOutput:
        """One finished answer. Raises `GenerationError` when its tokens cannot be turned into text."""
        text, ending = self._text(sequence, ending)
        scores = sequence.scores
        return CompletionOutput(
            index=sequence.index,
            text=text,
            token_ids=tuple(sequence.ids),
            finish_reason=ending.reason,
            stop_reason=ending.stop,
            logprobs=None if scores is None else self._logprobs(sequence.ids, scores),
            cumulative_logprob=None if scores is None else sum(score.logprob for score in scores),
        )

    def request(self, live: LiveRequest) -> RequestOutput:
        """A request whose answers have all finished."""
        admitted = live.admitted
        finished = time.perf_counter() - live.arrived
        scores = live.prompt_scores
        aborted = any(answer.finish_reason == "abort" for answer in live.outputs.values())
        prompt = admitted.prompt.tolist()
        return RequestOutput(
            request_id=admitted.request.request_id,
            prompt=admitted.request.prompt,
            prompt_token_ids=tuple(prompt),
            outputs=tuple(live.outputs[index] for index in sorted(live.outputs)),
            seed=admitted.sampling.seed,
            prompt_logprobs=None if scores is None or aborted else self._prompt_logprobs(prompt, scores),
            num_cached_tokens=live.cached_tokens or 0,
            prefill="exact" if admitted.decoder_start == 0 else "bounded",
            replay=self._replay if live.replayed else None,
            metrics=RequestMetrics(
                first_token=finished if live.first_token is None else live.first_token,
                finished=finished,
                preemptions=live.preemptions,
                queued=finished if live.queued is None else live.queued,
            ),
        )

    def _text(self, sequence: Sequence, ending: Ending) -> tuple[str, Ending]:
        """The answer's text. What the detokeniser held back until the end may still complete a stop string."""
        if self._tokenizer is None:
            return "", ending
        params = sequence.owner.admitted.params
        if sequence.search is None:
            ids = sequence.ids[:-1] if ending.by_token and not params.include_stop else sequence.ids
            return self._tokenizer.decode(ids, params.skip_special_tokens), ending
        assert sequence.detokenizer is not None
        hit = ending.hit
        if hit is None:
            counts = ending.reason != "abort" and len(sequence.ids) > params.min_tokens
            hit = sequence.search.push(sequence.detokenizer.finish(), counts)
            if hit is not None:
                ending = Ending("stop", hit.stop, hit=hit)
        text = sequence.search.text
        if hit is not None:
            text = text[: hit.end if params.include_stop else hit.start]
        return text, ending

    def _logprobs(self, ids: Items[int], scores: Items[TokenScore]) -> tuple[TokenLogprobs, ...]:
        text_of = self._texts()
        return tuple(_token_logprobs(token, score, text_of) for token, score in zip(ids, scores, strict=True))

    def _prompt_logprobs(self, prompt: Items[int], scores: PromptScores) -> tuple[TokenLogprobs | None, ...]:
        text_of = self._texts()
        if np.isnan(scores.logprob[1:]).any():
            place = 1 + int(np.isnan(scores.logprob[1:]).argmax())
            raise GenerationError(f"the logits before prompt token {place} are not numbers")
        rows = zip(scores.logprob.tolist(), scores.rank.tolist(), scores.top_ids, scores.top_logprobs, strict=True)
        given = (_token_logprobs(token, TokenScore(*row), text_of) for token, row in zip(prompt, rows, strict=True))
        return (None, *itertools.islice(given, 1, None))

    def _texts(self) -> Callable[[int], str]:
        """Token id -> its own decoding, remembered while one output is made."""
        return (lambda token: "") if self._tokenizer is None else functools.cache(self._tokenizer.token_text)


def failure(request: Request, error: DeepInferError, admitted: Admitted | None = None) -> RequestOutput:
    """The output of a request that could not be served or finished. It may be one whose prompt is of no use at all."""
    given: object = request.prompt_token_ids if admitted is None else admitted.prompt.tolist()
    return RequestOutput(
        request_id=request.request_id,
        prompt=request.prompt,
        prompt_token_ids=tuple(given) if isinstance(given, Items) else (),
        error=error,
        seed=None if admitted is None else admitted.sampling.seed,
    )


def _token_logprobs(token: int, score: TokenScore, text_of: Callable[[int], str]) -> TokenLogprobs:
    top = (
        Logprob(other, logprob, rank, text_of(other))
        for rank, (other, logprob) in enumerate(
            zip(score.top_ids.tolist(), score.top_logprobs.tolist(), strict=True), 1
        )
        if other >= 0 and logprob > -math.inf
    )
    return TokenLogprobs(Logprob(token, score.logprob, score.rank, text_of(token)), tuple(top))
