"""From a Request to what the engine schedules: encoded, checked against the model, with its seed drawn.

Checks that need no model are in `api/params.py`, those of token ids in parameters in `sampling/request.py`.
"""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from deepinfer_core.api.errors import PromptTooLong, RequestError, UnsupportedRequest, nearest, shown
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.sampling.request import RequestSampling, bad_word_tokens, request_sampling
from deepinfer_core.text.tokenizer import lone_surrogate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deepinfer_core.engine.request import Request
    from deepinfer_core.interfaces.constraint import Compiled, ConstraintEngine
    from deepinfer_core.interfaces.model import ModelInfo
    from deepinfer_core.interfaces.sampler import LogitsProcessor
    from deepinfer_core.text.tokenizer import Tokenizer

T_co = TypeVar("T_co", covariant=True)

MAX_LOGPROB_ENTRIES = 1 << 24  # logprobs that one request may ask for, over all its positions


class Named(Protocol[T_co]):
    """What plugins registered of one kind, by name. What it is asked for may be made only then."""

    def __contains__(self, name: str, /) -> bool: ...

    def __getitem__(self, name: str, /) -> T_co: ...

    def __iter__(self) -> Iterator[str]: ...


@dataclass(frozen=True, slots=True)
class ConstraintTask:
    """A constraint that is still to be compiled, away from the step loop."""

    engine: ConstraintEngine
    kind: str
    spec: Any
    tokenizer: Tokenizer
    end_tokens: tuple[int, ...]

    def compile(self) -> Compiled:
        return self.engine.compile(self.kind, self.spec, self.tokenizer, self.end_tokens)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that can be scheduled."""

    request: Request
    prompt: NDArray[np.int32]
    max_new_tokens: int  # of each answer, cut to what the context leaves
    eos_token_ids: tuple[int, ...]  # empty when the request ignores them
    stop_tokens: tuple[int, ...]  # every id that ends an answer
    sampling: RequestSampling
    decoder_start: int  # first position that runs the decoder half
    cache_key: bytes  # requests of one key may share cached prefixes
    constraint: ConstraintTask | None

    @property
    def params(self) -> SamplingParams:
        return self.request.params


class Admission:
    """Checks requests against one model and its tokenizer. Without a tokenizer only token ids are served."""

    def __init__(
        self,
        info: ModelInfo,
        tokenizer: Tokenizer | None,
        constraints: Named[ConstraintEngine],
        processors: Named[LogitsProcessor],
        *,
        max_length: int,
        decoder_rows: int,
        seed: int | None = None,
    ) -> None:
        """`decoder_rows`: prompt rows that bounded prefill keeps, 0 for exact prefill. `seed`: base of drawn seeds."""
        self._info = info
        self._tokenizer = tokenizer
        self._constraints = constraints
        self._processors = processors
        self._max_length = max_length
        self._decoder_rows = decoder_rows
        self._random = random.Random(secrets.randbits(64) if seed is None else seed)
        self._secret = secrets.token_bytes(32)

    @property
    def vocab_size(self) -> int:
        """Ids that may be sampled: the head may have more rows than the tokenizer has ids."""
        head = self._info.vocab_size
        return head if self._tokenizer is None else min(head, self._tokenizer.vocab_size)

    def admit(self, request: Request) -> Admitted:
        """Raises a `RequestError` that says what is wrong with this request."""
        params = request.params
        if not isinstance(params, SamplingParams):
            raise RequestError(f"params is a {type(params).__name__}: give SamplingParams")
        self._check_texts(request)
        prompt = self._prompt(request)
        max_new_tokens = self._max_new_tokens(params, len(prompt))
        self._check_logprobs(params, len(prompt), max_new_tokens)
        eos = () if params.ignore_eos else self._info.eos_token_ids
        stop_tokens = tuple(dict.fromkeys((*eos, *params.stop_token_ids)))
        seed = self._random.getrandbits(64) if params.seed is None else params.seed
        return Admitted(
            request=request,
            prompt=prompt,
            max_new_tokens=max_new_tokens,
            eos_token_ids=eos,
            stop_tokens=stop_tokens,
            sampling=self._sampling(params, seed, stop_tokens),
            decoder_start=self._decoder_start(params, len(prompt)),
            cache_key=_cache_key(request.cache_salt, self._secret),
            constraint=self._constraint(params, stop_tokens),
        )

    def _check_texts(self, request: Request) -> None:
        params = request.params
        texts = [("prompt", request.prompt or "")]
        texts += [(f"stop[{i}]", text) for i, text in enumerate(params.stop)]
        texts += [(f"bad_words[{i}]", text) for i, text in enumerate(params.bad_words)]
        for field, text in texts:
            if not isinstance(text, str):
                raise RequestError(f"{field} is a {type(text).__name__}: give text")
            if text and self._tokenizer is None:
                raise UnsupportedRequest(
                    f"{field} is text and this model has no tokenizer.json: give prompt_token_ids, and stop_token_ids "
                    "in place of stop strings"
                )
            if (offset := lone_surrogate(text)) is not None:
                raise RequestError(
                    f"{field} holds a lone surrogate U+{ord(text[offset]):04X} at character {offset}: it is half of a "
                    "character; give the whole one"
                )
        if params.stop and self._tokenizer is not None and not self._tokenizer.byte_level:
            raise UnsupportedRequest(
                "stop strings need a byte-level tokenizer and this model's is of another kind: give stop_token_ids"
            )

    def _prompt(self, request: Request) -> NDArray[np.int32]:
        if (request.prompt is None) == (request.prompt_token_ids is None):
            raise RequestError("a request has either prompt or prompt_token_ids: give exactly one of them")
        if request.prompt_token_ids is not None:
            ids = request.prompt_token_ids
        else:
            ids = self._encode(request.prompt) if request.prompt else ()
        if not isinstance(ids, Sequence):
            raise RequestError(f"prompt_token_ids is a {type(ids).__name__}: give a tuple of token ids")
        if not ids:
            raise RequestError("the prompt is empty: give at least one token")
        if len(ids) >= self._max_length:
            raise PromptTooLong(
                f"the prompt has {len(ids)} tokens and the context {self._max_length}, one of which the answer needs: "
                f"shorten it to {self._max_length - 1} tokens or raise max_length"
            )
        self._check_tokens(ids)
        return np.asarray(ids, dtype=np.int32)

    def _encode(self, text: str) -> tuple[int, ...]:
        assert self._tokenizer is not None
        self._tokenizer.refuse_hopeless(text, self._max_length)
        return tuple(self._tokenizer.encode(text))

    def _check_tokens(self, ids: Any) -> None:
        vocab = self._info.vocab_size
        for index, token in enumerate(ids):
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab:
                raise RequestError(f"prompt token {index} is {shown(token)}: this model's tokens are 0 to {vocab - 1}")
        if self._info.image_token_id in ids:
            raise UnsupportedRequest(
                f"prompt token {ids.index(self._info.image_token_id)} stands for an image, and images are not "
                "supported: leave it out"
            )

    def _max_new_tokens(self, params: SamplingParams, prompt_length: int) -> int:
        room = self._max_length - prompt_length
        if params.min_tokens > room:
            raise RequestError(
                f"min_tokens = {params.min_tokens} is not allowed: the context leaves {room} tokens after the prompt; "
                "lower it, shorten the prompt or raise max_length"
            )
        return room if params.max_tokens is None else min(params.max_tokens, room)

    def _check_logprobs(self, params: SamplingParams, prompt_length: int, max_new_tokens: int) -> None:
        for field, positions in (("logprobs", params.n * max_new_tokens), ("prompt_logprobs", prompt_length)):
            alternatives = getattr(params, field)
            entries = 0 if alternatives is None else positions * (1 + alternatives)  # the token itself is one
            if entries > MAX_LOGPROB_ENTRIES:
                raise RequestError(
                    f"{field} = {alternatives} asks for {entries} entries over all positions: at most "
                    f"{MAX_LOGPROB_ENTRIES} are given; ask for fewer"
                )

    def _sampling(self, params: SamplingParams, seed: int, stop_tokens: tuple[int, ...]) -> RequestSampling:
        for token in params.stop_token_ids:
            if token >= self._info.vocab_size:
                raise RequestError(
                    f"stop_token_ids names token {token}: this model's tokens are 0 to {self._info.vocab_size - 1}"
                )
        self._check_processors(params)
        words: tuple[tuple[int, ...], ...] = ()
        if params.bad_words:
            assert self._tokenizer is not None
            words = bad_word_tokens(params.bad_words, self._tokenizer.encode)
        return request_sampling(
            params,
            seed=seed,
            vocab_size=self.vocab_size,
            stop_token_ids=stop_tokens,
            bad_words=words,
            processors=params.processors,
        )

    def _check_processors(self, params: SamplingParams) -> None:
        for name in params.processors:
            if name not in self._processors:
                raise RequestError(
                    f"processors names {name!r}, which no plugin registers{nearest(name, self._processors)}; "
                    f"registered: {', '.join(self._processors) or 'none'}"
                )
            self._processors[name]  # made here, so that a factory that fails fails its request and no step

    def _decoder_start(self, params: SamplingParams, prompt_length: int) -> int:
        if self._decoder_rows == 0 or params.prompt_logprobs is not None:
            return 0
        return max(0, prompt_length - self._decoder_rows)

    def _constraint(self, params: SamplingParams, stop_tokens: tuple[int, ...]) -> ConstraintTask | None:
        if params.constraint is None:
            return None
        if len(params.constraint) != 1:
            raise RequestError(
                f"constraint has the keys {sorted(map(str, params.constraint))}: give one kind, such as "
                '{"regex": "[0-9]+"}'
            )
        kind, spec = next(iter(params.constraint.items()))
        if kind not in self._constraints:
            raise UnsupportedRequest(
                f"constraint kind {shown(kind)} is not enforced by any installed plugin"
                f"{nearest(str(kind), self._constraints)}; enforced: {', '.join(self._constraints) or 'none'}; install "
                "a plugin that registers it (`deepinfer plugins` lists what is installed), or leave the constraint out"
            )
        if self._tokenizer is None:
            raise UnsupportedRequest("a constraint needs the text of tokens and this model has no tokenizer.json")
        return ConstraintTask(self._constraints[kind], kind, spec, self._tokenizer, stop_tokens)


def _cache_key(salt: str | None, secret: bytes) -> bytes:
    """16 bytes; equal for equal salts only. The cache is an engine's own, so model and backend need no part in it, and
    with a secret of its own nobody can make prompts whose blocks collide."""
    if salt is None:
        salt = ""
    elif not isinstance(salt, str) or not salt:
        raise RequestError(f"cache_salt = {salt!r} is not allowed: give a text that is not empty, or leave it out")
    if (offset := lone_surrogate(salt)) is not None:
        raise RequestError(f"cache_salt holds half of a character at character {offset}: give the whole one")
    return hashlib.blake2b(salt.encode(), digest_size=16, key=secret).digest()
