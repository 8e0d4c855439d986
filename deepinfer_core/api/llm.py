"""LLM: a model loaded and ready to answer. What the command line and the batch runner are built on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from deepinfer_core.api.config import EngineConfig, read_environment
from deepinfer_core.api.errors import DeviceError, RequestError, UnsupportedRequest
from deepinfer_core.api.interrupt import interrupt_held
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.api.prompts import Params, Prompt, Refused, make_requests
from deepinfer_core.engine.build import build_engine
from deepinfer_core.engine.output import failure
from deepinfer_core.engine.request import Request
from deepinfer_core.observe.progress import NoProgress, make_progress
from deepinfer_core.plugin.loader import load_plugins
from deepinfer_core.text.chat import AnswerReader, ChatAnswer, ChatDelta, ChatFormat, read_conversation

if TYPE_CHECKING:
    from deepinfer_core.engine.book import Finished
    from deepinfer_core.engine.engine import Engine
    from deepinfer_core.interfaces.observer import Observer
    from deepinfer_core.plugin.loader import Plugins
    from deepinfer_core.text.tokenizer import Tokenizer

OnText: TypeAlias = Callable[[int, int, str], None]  # (a prompt's place, an answer's index, more of its text)
OnDelta: TypeAlias = Callable[[int, ChatDelta], None]  # (an answer's index, more of it)

IN_FLIGHT = 2  # answers that a run keeps in the engine, as a multiple of those that may run at once


@dataclass(frozen=True, slots=True)
class ChatOutput:
    """A chat request's outcome, and what each of its answers says. With an error there are no answers."""

    output: RequestOutput
    answers: tuple[ChatAnswer, ...]


class LLM:
    """A model on a backend. Use it as a context manager, or call `close`.

    One thread at a time may use it. Its options are those of `EngineConfig`; what it runs on, and whatever runs on a
    reference, is in `report`.
    """

    def __init__(
        self,
        model: str = "demo",
        *,
        observers: Sequence[Observer] = (),
        plugins: Plugins | None = None,
        **options: Any,
    ) -> None:
        """Load the model, with `plugins` in place of the installed ones where they are given.

        Raises `ConfigError`, `PluginError` or `CheckpointError`, each saying what to change.
        """
        self.config = EngineConfig.from_dict({"model": model, **options})
        environment = read_environment()
        self._built = build_engine(self.config, environment, plugins or load_plugins(environment), observers)
        self._finished: dict[int, RequestOutput] = {}  # outcomes of runs that are not asking for them now
        self._listeners: dict[int, Callable[[int, str], None]] = {}  # who hears a request's text while it is written
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The checkpoint's own; None when it has none: then only token ids are served."""
        return self._built.tokenizer

    @property
    def max_length(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return self._built.max_length

    @property
    def report(self) -> tuple[str, ...]:
        """One sentence each: the backend and why, whatever runs on a reference, settings that nobody reads."""
        return self._built.report

    @property
    def engine(self) -> Engine:
        """What steps underneath, for benchmarks and tools."""
        return self._built.engine

    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        params: Params | Sequence[Params] | None = None,
        *,
        progress: bool = False,
        cache_salt: str | None = None,
        on_text: OnText | None = None,
    ) -> list[RequestOutput]:
        """Answer prompts (texts or lists of token ids); one output each, in their order.

        `params` is for all prompts, or a list with one for each. Cached prefixes are shared between calls of equal
        `cache_salt` only. `on_text` is called with pieces of the answers while they are written: those of an answer,
        joined, are its text. It must not use this LLM. What is wrong with one request is that output's `error`. When
        the device fails, so do all requests that were not finished.
        """
        made = make_requests(prompts, params, cache_salt)
        outputs = {i: failure(one.request, one.error) for i, one in enumerate(made) if isinstance(one, Refused)}
        wanted = [(i, one) for i, one in enumerate(made) if isinstance(one, Request)]
        with closing(self._run(wanted, on_text)) as run, make_progress() if progress else NoProgress() as shown:
            shown.start(len(made), len(outputs))
            shown.ready()
            try:
                for place, output in run:
                    outputs[place] = output
                    shown.advance(sum(len(answer.token_ids) for answer in output.outputs))
            except DeviceError as error:
                outputs |= {i: failure(one, error) for i, one in wanted if i not in outputs}
        return [outputs[place] for place in range(len(made))]

    def stream(self, requests: Iterable[Request]) -> Iterator[RequestOutput]:
        """Outputs in order of completion. Pulls requests no faster than it answers them, in the calling thread.

        Raises `DeviceError` when the device fails; every request that finished before has been given out. Leaving the
        iteration early aborts what is running.
        """
        for _, output in self._run(enumerate(map(_checked, requests))):
            yield output

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        params: Params | None = None,
        *,
        on_delta: OnDelta | None = None,
        **options: Any,
    ) -> ChatOutput:
        """Answer one conversation. `options` are the chat format's: tools, tool_choice, response_format, thinking, ...

        `on_delta` is called with what is added to thoughts and contents while they are written, and must not use this
        LLM. Raises `RequestError` when the conversation itself is wrong.
        """
        if self.tokenizer is None:
            raise UnsupportedRequest("chat needs a tokenizer, and this model has no tokenizer.json")
        conversation = read_conversation({"messages": messages, **options})
        prompt = ChatFormat(self.tokenizer).encode(conversation)
        (made,) = make_requests([prompt], params)
        if isinstance(made, Refused):
            raise made.error
        params = made.params.replace(skip_special_tokens=False)  # they mark the parts of an answer
        readers = [AnswerReader(conversation) for _ in range(params.n)]

        def tell(index: int, delta: ChatDelta) -> None:
            if on_delta is not None and (delta.content or delta.reasoning):
                on_delta(index, delta)

        request = Request(made.request_id, prompt_token_ids=prompt, params=params)
        run = self._run([(0, request)], lambda _, index, text: tell(index, readers[index].push(text)))
        ((_, output),) = run
        answers = []
        for answer in output.outputs:
            rest, read = readers[answer.index].finish("stop" if answer.finish_reason == "stop" else "length")
            tell(answer.index, rest)
            answers.append(read)
        return ChatOutput(output, tuple(answers))

    def forget_prefixes(self) -> None:
        """Empty the prefix cache, as before a measurement."""
        self.engine.forget_prefixes()

    def close(self) -> None:
        """Give the device back. Unfinished requests are dropped."""
        if not self._closed:
            self._closed = True
            self._built.close()

    def _run(
        self, requests: Iterable[tuple[int, Request]], on_text: OnText | None = None
    ) -> Generator[tuple[int, RequestOutput], None, None]:
        """(place, output) of each (place, request), as they finish."""
        run = _Run(IN_FLIGHT * self.config.max_running)
        source = iter(requests)
        try:
            while True:
                if self._closed:
                    raise DeviceError("this LLM is closed: make a new one")
                while run.has_room and (item := next(source, None)) is not None:
                    with interrupt_held():
                        self._add(run, *item, on_text)
                if not run.places:
                    return
                with interrupt_held():
                    self._collect(self.engine.step())
                self._deliver()
                for key in [key for key in self._finished if key in run.places]:
                    self._listeners.pop(key, None)
                    yield run.remove(key), self._finished.pop(key)
        finally:
            with interrupt_held():
                for key in run.places:
                    self.engine.abort(key)
                self._collect(self.engine.settle())
                for key in run.places:
                    self._finished.pop(key, None)
                    self._listeners.pop(key, None)

    def _add(self, run: _Run, place: int, request: Request, on_text: OnText | None) -> None:
        key = self.engine.add(request if on_text is None else replace(request, stream=True))
        run.add(key, place, request)
        if on_text is not None:
            self._listeners[key] = partial(on_text, place)

    def _deliver(self) -> None:
        for piece in self.engine.take_pieces():
            listener = self._listeners.get(piece.key)
            if listener is not None:
                listener(piece.index, piece.text)

    def _collect(self, outcomes: Iterable[Finished]) -> None:
        self._finished.update((finished.key, finished.output) for finished in outcomes)


def _checked(request: Request) -> Request:
    if not isinstance(request, Request):
        raise RequestError(f"stream was given a {type(request).__name__}: give Request objects, or use generate")
    return request


class _Run:
    """What one call has in the engine: places by key, and room for more."""

    def __init__(self, limit: int) -> None:
        """`limit`: answers that may be in the engine at once; a single request may have more."""
        self.places: dict[int, int] = {}
        self._answers: dict[int, int] = {}
        self._room = limit

    @property
    def has_room(self) -> bool:
        return self._room > 0

    def add(self, key: int, place: int, request: Request) -> None:
        answers = request.params.n if isinstance(request.params, SamplingParams) else 1
        self.places[key], self._answers[key] = place, answers
        self._room -= answers

    def remove(self, key: int) -> int:
        self._room += self._answers.pop(key)
        return self.places.pop(key)
