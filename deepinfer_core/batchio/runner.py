"""One batch run: check the input, answer every line of it once, in a file that a later run can continue."""

from __future__ import annotations

import hashlib
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deepinfer_core.api.errors import RequestError, UnsupportedRequest
from deepinfer_core.api.interrupt import StopSignals
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.batchio.entry import Entry, Rejected
from deepinfer_core.batchio.manifest import Manifest
from deepinfer_core.batchio.opening import check_paths, open_output
from deepinfer_core.batchio.options import BatchOptions
from deepinfer_core.batchio.reader import InputFile, Scan
from deepinfer_core.batchio.records import Answerer, Asked, Record, error_record
from deepinfer_core.batchio.writer import RecordWriter
from deepinfer_core.engine.request import Request
from deepinfer_core.text.chat import ChatFormat, Conversation
from deepinfer_core.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


class Engine(Protocol):
    """What a run needs of `LLM`."""

    @property
    def tokenizer(self) -> Tokenizer | None: ...

    @property
    def max_length(self) -> int:
        """Tokens that a prompt and its answer may have together."""

    def stream(self, requests: Iterable[Request]) -> Iterator[RequestOutput]:
        """Outputs as they finish. Pulls requests in the calling thread, no faster than it can run them."""


class Progress(Protocol):
    """Told of every record."""

    def start(self, total: int, done: int) -> None:
        """`total` records are owed, `done` of them by an earlier run."""

    def ready(self) -> None:
        """The model is loaded."""

    def advance(self, tokens: int) -> None:
        """One more record is written, for an answer of so many tokens."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did. `resumed` records, `resumed_failed` of them errors, were there before; the other counts are of
    this run."""

    requests: int
    resumed: int
    resumed_failed: int
    succeeded: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float  # answering, without loading the model
    models: tuple[str, ...]  # models other than ours that lines name; ours answered them

    @property
    def tokens_per_second(self) -> float:
        return self.completion_tokens / self.seconds if self.seconds > 0 else 0.0


def run_batch(
    source: Path,
    target: Path,
    engine: Callable[[], AbstractContextManager[Engine]],
    options: BatchOptions,
    progress: Progress,
) -> Summary:
    """Answer every line of `source` in `target`. `engine` is called once, when the first request needs it.

    Raises `InputFileError` before anything is loaded when the files cannot be used. When the engine dies, or the run is
    interrupted, the records of all finished requests are in `target` or in its side file, and `resume` continues.

    SIGINT and SIGTERM raise `KeyboardInterrupt`: while requests are being answered, the first one when those in flight
    are finished and lines are left.
    """
    check_paths(source, target, options)
    with StopSignals() as signals, InputFile(source, options.defaults) as file:
        scan = file.scan()
        if scan.rejected:
            logger.warning("%s", _rejected(scan))
        writer, manifest = open_output(target, file, scan, options, options.identity())
        with closing(writer):
            progress.start(scan.requests, writer.done)
            run = _Run(file, writer, progress, options.model, manifest, signals)
            run.execute(engine)
    others = tuple(name for name in scan.models if name != options.model)
    return run.summary(scan.requests, others)


class _Run:
    """The requests in flight and the counts of one run."""

    def __init__(
        self,
        file: InputFile,
        writer: RecordWriter,
        progress: Progress,
        model: str,
        manifest: Manifest,
        signals: StopSignals,
    ) -> None:
        self._file = file
        self._writer = writer
        self._progress = progress
        self._model = model
        self._manifest = manifest
        self._signals = signals
        self._asked: dict[str, Asked] = {}  # request id -> what is in flight
        self._resumed, self._resumed_failed = writer.done, writer.failed
        self._succeeded = self._failed = self._prompt_tokens = self._completion_tokens = 0
        self._seconds = 0.0
        self._cut_short = False  # lines are left that nobody read, because the user wanted to stop

    def execute(self, engine: Callable[[], AbstractContextManager[Engine]]) -> None:
        entries = self._entries()
        first = next(entries, None)
        if first is None:
            return
        with engine() as llm:
            self._progress.ready()
            started = time.perf_counter()
            answerer = Answerer(self._model, self._manifest.created, llm.tokenizer)
            chat = None if llm.tokenizer is None else ChatFormat(llm.tokenizer)
            requests = self._requests(itertools.chain([first], entries), chat, llm.max_length)
            with self._signals.finishing():
                for output in llm.stream(requests):
                    self._finish(answerer, output)
            self._seconds = time.perf_counter() - started
        assert not self._asked, f"the engine gave no output for {len(self._asked)} requests"
        if self._cut_short:
            raise KeyboardInterrupt

    def summary(self, requests: int, models: tuple[str, ...]) -> Summary:
        return Summary(
            requests=requests,
            resumed=self._resumed,
            resumed_failed=self._resumed_failed,
            succeeded=self._succeeded,
            failed=self._failed,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            seconds=self._seconds,
            models=models,
        )

    def _entries(self) -> Iterator[Entry]:
        """The lines still to be answered, until the user wants to stop. Lines that are no requests get their records
        here."""
        for entry in self._file.entries(self._writer.wanted):
            if self._signals.asked:
                self._cut_short = True
                return
            if isinstance(entry, Rejected):
                self._write(entry.line, error_record(entry.line, entry.custom_id, entry.error))
            else:
                yield entry

    def _requests(self, entries: Iterable[Entry], chat: ChatFormat | None, max_length: int) -> Iterator[Request]:
        """Those of the entries that can be asked. The others get their records here."""
        for entry in entries:
            try:
                request = _request(entry, self._params(entry), chat, max_length)
            except RequestError as error:
                self._write(entry.line, error_record(entry.line, entry.custom_id, error))
                continue
            conversation = entry.prompt if isinstance(entry.prompt, Conversation) else None
            self._asked[request.request_id] = Asked(
                entry.line,
                entry.custom_id,
                conversation,
                entry.return_token_ids,
                entry.params.skip_special_tokens,
            )
            yield request

    def _params(self, entry: Entry) -> SamplingParams:
        if entry.params.seed is not None:
            return entry.params
        return entry.params.replace(seed=_seed_of(entry.custom_id, self._manifest.seed))

    def _finish(self, answerer: Answerer, output: RequestOutput) -> None:
        asked = self._asked.pop(output.request_id)
        try:
            record = answerer.record(asked, output)
        except RequestError as error:
            record = error_record(asked.line, asked.custom_id, error)
        self._write(asked.line, record)

    def _write(self, line: int, record: Record) -> None:
        self._writer.write(line, record)
        tokens = 0
        if record["response"] is None:
            self._failed += 1
        else:
            usage = record["response"]["body"]["usage"]
            tokens = usage["completion_tokens"]
            self._succeeded += 1
            self._prompt_tokens += usage["prompt_tokens"]
            self._completion_tokens += tokens
        self._progress.advance(tokens)


def _request(entry: Entry, params: SamplingParams, chat: ChatFormat | None, max_length: int) -> Request:
    text, ids = None, None
    if isinstance(entry.prompt, str):
        text = entry.prompt
    elif isinstance(entry.prompt, tuple):
        ids = entry.prompt
    elif chat is None:
        raise UnsupportedRequest("chat needs a tokenizer, and this model has no tokenizer.json: give prompt_token_ids")
    else:
        ids = chat.encode(entry.prompt, max_length)
    name = str(entry.line)  # unique, whatever the custom_id is
    return Request(name, text, ids, params, entry.cache_salt)


def _rejected(scan: Scan) -> str:
    """Said before a model is loaded: the user may want to mend the input first."""
    assert scan.first_rejected is not None
    first = f"line {scan.first_rejected.line}: {scan.first_rejected.error}"
    return f"{scan.rejected} of {scan.requests} lines are no requests and get error records; the first is {first}"


def _seed_of(custom_id: str, seed: int) -> int:
    """A request's own seed, the same in whichever run of the file it is answered."""
    data = f"{seed} {custom_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
