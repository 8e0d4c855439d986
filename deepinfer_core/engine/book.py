"""The requests that are being served: from admitted to finished, failed or aborted. Keeps nothing of those that ended.

It adds answers to the scheduler and ends them there early; planning and committing belong to `engine.py`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.api.errors import DeepInferError, GenerationError
from deepinfer_core.engine.feed import Piece
from deepinfer_core.engine.output import extend, failure
from deepinfer_core.engine.sequence import Ending, LiveRequest, Sequence, TokenScore
from deepinfer_core.interfaces.scheduler import FinishCode, SchedulerRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from deepinfer_core.api.outputs import RequestOutput
    from deepinfer_core.engine.admission import Admitted
    from deepinfer_core.engine.output import OutputWriter
    from deepinfer_core.engine.request import Request
    from deepinfer_core.engine.step import PromptRows
    from deepinfer_core.interfaces.constraint import Compiled, Matcher
    from deepinfer_core.interfaces.sampler import Sampled
    from deepinfer_core.interfaces.scheduler import Committed, Scheduler
    from deepinfer_core.sampling.sampler import Scores
    from deepinfer_core.text.tokenizer import Tokenizer

_NOTHING_DRAWN = (
    "no token could be drawn {place}: nothing that allowed_token_ids, bad_words and the "
    "constraint left was possible, the model's logits were not numbers, or a logits processor failed (the log says how)"
)


@dataclass(frozen=True, slots=True)
class Finished:
    """A request's outcome, under the key that `Engine.add` gave it."""

    key: int
    output: RequestOutput


class Book:
    """Live requests by key, their answers by scheduler handle, and the outcomes and pieces that nobody has taken."""

    def __init__(self, scheduler: Scheduler, writer: OutputWriter, tokenizer: Tokenizer | None) -> None:
        self._scheduler = scheduler
        self._writer = writer
        self._tokenizer = tokenizer
        self._handles = itertools.count()
        self._live: dict[int, LiveRequest] = {}
        self._sequences: dict[int, Sequence] = {}
        self._done: list[Finished] = []
        self._pieces: list[Piece] = []
        self.scoring: dict[int, Sequence] = {}  # the answers, by handle, along with which a prompt is scored
        self.constrained: dict[int, Sequence] = {}  # the answers with a constraint

    def __len__(self) -> int:
        """Requests being served."""
        return len(self._live)

    @property
    def has_outcomes(self) -> bool:
        return bool(self._done)

    def take(self) -> list[Finished]:
        """The outcomes since the last call, in order of completion."""
        done, self._done = self._done, []
        return done

    def take_pieces(self) -> list[Piece]:
        """The text of requests that stream since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def sequence(self, handle: int) -> Sequence | None:
        """The answer of that handle; None once it has ended."""
        return self._sequences.get(handle)

    def start(self, key: int, admitted: Admitted, arrived: float, compiled: Compiled | None) -> None:
        """Begin a request's answers. What the scheduler refuses becomes the request's error."""
        live = self._live[key] = LiveRequest(key, admitted, arrived)
        try:
            for index in range(admitted.params.n):
                matcher = None if compiled is None else _matcher(compiled)
                sequence = Sequence(next(self._handles), index, live, self._tokenizer, matcher)
                if admitted.max_new_tokens == 0 and live.prompt_scores is None:
                    self._end(sequence, Ending("length"))
                    continue
                self._scheduler.add(_scheduler_request(sequence))
                self._register(sequence)
        except Exception as error:
            self.fail(live, request_error(error))

    def reject(self, key: int, request: Request, error: DeepInferError) -> None:
        """The outcome of a request that was never started."""
        self._done.append(Finished(key, failure(request, error)))

    def fail(self, live: LiveRequest, error: DeepInferError) -> None:
        """End a request, all its answers with it, with an error. A request ends once: later errors change nothing."""
        if self._live.pop(live.key, None) is None:
            return
        for sequence in list(live.running.values()):
            self._release(sequence)
        self._done.append(Finished(live.key, failure(live.admitted.request, error, live.admitted)))

    def abort(self, key: int) -> None:
        """End a request where it stands; what its answers have so far is its outcome. Nothing happens to others."""
        live = self._live.get(key)
        if live is not None:
            for sequence in list(live.running.values()):
                self._end(sequence, Ending("abort"))

    def began(self, handles: Items[int], cached: Items[int]) -> None:
        """Answers that were given a slot, and how many of their tokens a prefix hit spared."""
        for handle, tokens in zip(handles, cached, strict=True):
            sequence = self._sequences[handle]
            live = sequence.owner
            if live.queued is None:
                live.queued = time.perf_counter() - live.arrived
            live.replayed |= tokens > 0
            if sequence.index == 0 and live.cached_tokens is None:
                live.cached_tokens = tokens

    def preempted(self, handles: Items[int]) -> None:
        for handle in handles:
            if handle in self._sequences:
                self._sequences[handle].owner.preemptions += 1

    def commit(self, committed: Committed, sampled: Sampled) -> None:
        """Hand a step's tokens to their answers. Answers that ended, or were preempted, since its plan get none."""
        tokens, failed = sampled.tokens.tolist(), sampled.failed.tolist()
        outcomes = zip(committed.request.tolist(), committed.accepted.tolist(), committed.finish.tolist(), strict=True)
        for row, (handle, accepted, code) in enumerate(outcomes):
            sequence = self._sequences.get(handle)
            if sequence is None or (accepted == 0 and code == FinishCode.NONE):
                continue
            live = sequence.owner
            if live.first_token is None and accepted > 0:
                live.first_token = time.perf_counter() - live.arrived
            if sequence.plain and code == FinishCode.NONE and not failed[row]:
                sequence.ids.extend(tokens[row][:accepted])
                continue
            if failed[row] and accepted > 0:
                self.fail(live, _nothing_drawn(sequence))
                continue
            k = live.admitted.params.logprobs
            scores = None if k is None else _scores(sampled, row, accepted, k)
            self._extend(sequence, tokens[row][:accepted], scores, FinishCode(code))

    def store_prompt(self, rows: PromptRows, scores: Scores) -> None:
        """Keep the logprobs of the prompt tokens that a step scored."""
        logprob, rank = scores.logprob.numpy(), scores.rank.numpy()
        top_ids, top_logprobs = scores.top_ids.numpy(), scores.top_logprobs.numpy()
        start = 0
        for handle, first, count in rows.spans:
            sequence = self.scoring.get(handle)
            if sequence is not None:
                kept = sequence.owner.prompt_scores
                assert kept is not None
                span = slice(start, start + count)
                kept.store(first, logprob[span], rank[span], top_ids[span], top_logprobs[span])
            start += count

    def masked(self, sequence: Sequence, out: NDArray[np.int32]) -> bool:
        """Fill out [1, words] with what an answer's constraint allows next; False when that failed the request."""
        assert sequence.matcher is not None
        try:
            sequence.matcher.mask((), out)
        except Exception as error:
            self.fail(sequence.owner, request_error(error))
            return False
        return True

    def _extend(self, sequence: Sequence, tokens: list[int], scores: list[TokenScore] | None, code: FinishCode) -> None:
        try:
            ending = extend(sequence, tokens, scores, code)
            if sequence.feed is not None and ending is None:
                self._give(sequence, sequence.feed.push(tokens))
        except Exception as error:
            self.fail(sequence.owner, request_error(error))
            return
        if ending is not None:
            self._end(sequence, ending)

    def _end(self, sequence: Sequence, ending: Ending) -> None:
        """Finish one answer, and its request when it was the last. Answers of a request that failed are dropped."""
        live = sequence.owner
        self._release(sequence)
        if live.key not in self._live:
            return
        try:
            completion = live.outputs[sequence.index] = self._writer.completion(sequence, ending)
            if sequence.feed is not None:
                self._give(sequence, sequence.feed.finish(completion.text))
            if len(live.outputs) < live.admitted.params.n:
                return
            output = self._writer.request(live)
        except Exception as error:
            self.fail(live, request_error(error))
            return
        del self._live[live.key]
        self._done.append(Finished(live.key, output))

    def _give(self, sequence: Sequence, text: str) -> None:
        if text:
            self._pieces.append(Piece(sequence.owner.key, sequence.index, text))

    def _register(self, sequence: Sequence) -> None:
        handle = sequence.handle
        sequence.owner.running[handle] = self._sequences[handle] = sequence
        if sequence.scores_prompt:
            self.scoring[handle] = sequence
        if sequence.matcher is not None:
            self.constrained[handle] = sequence

    def _release(self, sequence: Sequence) -> None:
        """Forget an answer here and in the scheduler."""
        self._scheduler.finish(sequence.handle)
        for index in (self._sequences, self.scoring, self.constrained, sequence.owner.running):
            index.pop(sequence.handle, None)


def _matcher(compiled: Compiled) -> Matcher:
    matcher: Matcher | None = compiled.matcher()
    if matcher is None:
        raise GenerationError("the constraint's plugin gave None for a matcher")
    return matcher


def _scheduler_request(sequence: Sequence) -> SchedulerRequest:
    admitted = sequence.owner.admitted
    return SchedulerRequest(
        request=sequence.handle,
        prompt=admitted.prompt,
        max_new_tokens=admitted.max_new_tokens,
        min_new_tokens=admitted.params.min_tokens,
        stop_tokens=admitted.stop_tokens,
        decoder_start=admitted.decoder_start,
        prompt_logits=sequence.scores_prompt,
        cache_key=admitted.cache_key,
    )


def _scores(sampled: Sampled, row: int, count: int, k: int) -> list[TokenScore]:
    """The logprobs of a row's first `count` tokens."""
    assert sampled.logprob is not None, "a request with logprobs was sampled without"
    assert sampled.rank is not None
    assert sampled.top_ids is not None
    assert sampled.top_logprobs is not None
    ids, values = sampled.top_ids[row, :count, :k].numpy().copy(), sampled.top_logprobs[row, :count, :k].numpy().copy()
    return list(map(TokenScore, sampled.logprob[row].tolist(), sampled.rank[row].tolist(), ids, values))


def _nothing_drawn(sequence: Sequence) -> GenerationError:
    """Of several answers the first to fail ends the request, and which that is depends on how they were scheduled: so
    the text is that of any of them."""
    n = sequence.owner.admitted.params.n
    place = f"after {len(sequence.ids)} tokens of the answer" if n == 1 else f"for one of the {n} answers"
    return GenerationError(_NOTHING_DRAWN.format(place=place))


def request_error(error: Exception) -> DeepInferError:
    """What went wrong with one request, as its outcome."""
    if isinstance(error, DeepInferError):
        return error
    wrapped = GenerationError(f"the request could not be finished: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
