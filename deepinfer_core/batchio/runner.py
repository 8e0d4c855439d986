"""One batch run: check the input, answer every line of it once, in a file that a later run can continue."""

from __future__ import annotations

import hashlib
import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from deepinfer_core.api.errors import ConfigError, InputFileError, RequestError, UnsupportedRequest
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.batchio.entry import Entry, Rejected
from deepinfer_core.batchio.manifest import Manifest, manifest_path
from deepinfer_core.batchio.reader import InputFile, Scan
from deepinfer_core.batchio.recordfile import RecordFile
from deepinfer_core.batchio.records import Answerer, Asked, Record, error_record
from deepinfer_core.batchio.writer import CompletionOrder, InputOrder, RecordWriter, side_path
from deepinfer_core.engine.request import Request
from deepinfer_core.text.chat import ChatFormat, Conversation
from deepinfer_core.text.tokenizer import Tokenizer


class Engine(Protocol):
    """What a run needs of `LLM`."""

    @property
    def tokenizer(self) -> Tokenizer | None: ...

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """How to run. `settings` goes into the manifest: whatever besides the input the answers depend on."""

    model: str  # the name that responses carry
    settings: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)  # sampling parameters of requests without them
    seed: int | None = None  # from which requests without a seed get theirs; None: the system's randomness
    order: Literal["input", "completion"] = "input"
    resume: bool = False
    overwrite: bool = False


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
    """
    _check_paths(source, target, options)
    with InputFile(source, options.defaults) as file:
        scan = file.scan()
        writer, manifest = _open(target, scan, options)
        with closing(writer):
            progress.start(scan.requests, writer.done)
            run = _Run(file, writer, progress, options.model, manifest)
            run.execute(engine)
    others = tuple(name for name in scan.models if name != options.model)
    return run.summary(scan.requests, others)


class _Run:
    """The requests in flight and the counts of one run."""

    def __init__(
        self, file: InputFile, writer: RecordWriter, progress: Progress, model: str, manifest: Manifest
    ) -> None:
        self._file = file
        self._writer = writer
        self._progress = progress
        self._model = model
        self._manifest = manifest
        self._asked: dict[str, Asked] = {}  # request id -> what is in flight
        self._resumed, self._resumed_failed = writer.done, writer.failed
        self._succeeded = self._failed = self._prompt_tokens = self._completion_tokens = 0
        self._seconds = 0.0

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
            for output in llm.stream(self._requests(itertools.chain([first], entries), chat)):
                self._finish(answerer, output)
            self._seconds = time.perf_counter() - started
        assert not self._asked, f"the engine gave no output for {len(self._asked)} requests"

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
        """The lines still to be answered. Lines that are no requests get their records here."""
        for entry in self._file.entries(self._writer.wanted):
            if isinstance(entry, Rejected):
                self._write(entry.line, error_record(entry.line, entry.custom_id, entry.error))
            else:
                yield entry

    def _requests(self, entries: Iterable[Entry], chat: ChatFormat | None) -> Iterator[Request]:
        for entry in entries:
            try:
                request = _request(entry, chat, self._manifest.seed)
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


def _request(entry: Entry, chat: ChatFormat | None, seed: int) -> Request:
    name = str(entry.line)  # unique, whatever the custom_id is
    params = entry.params
    if params.seed is None:
        params = params.replace(seed=_seed_of(entry.custom_id, seed))
    if isinstance(entry.prompt, str):
        return Request(name, prompt=entry.prompt, params=params)
    if isinstance(entry.prompt, tuple):
        return Request(name, prompt_token_ids=entry.prompt, params=params)
    if chat is None:
        raise UnsupportedRequest("chat needs a tokenizer, and this model has no tokenizer.json: give prompt_token_ids")
    return Request(name, prompt_token_ids=chat.encode(entry.prompt), params=params)


def _seed_of(custom_id: str, seed: int) -> int:
    """A request's own seed, the same in whichever run of the file it is answered."""
    data = f"{seed} {custom_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _check_paths(source: Path, target: Path, options: BatchOptions) -> None:
    if options.resume and options.overwrite:
        raise ConfigError("resume and overwrite exclude each other: give one of them")
    if not target.name:
        raise InputFileError(f"{target} is not a file: give the records a file of their own")
    ours = {path.resolve() for path in (target, side_path(target), manifest_path(target))}
    if source.resolve() in ours or (target.exists() and source.exists() and target.samefile(source)):
        raise InputFileError(f"input and output are the same file, {source}: give another output")
    if not target.parent.is_dir():
        raise InputFileError(f"{target.parent} is not a folder: make it, or give another output")


def _open(target: Path, scan: Scan, options: BatchOptions) -> tuple[RecordWriter, Manifest]:
    """The writer and the run's manifest. No record that is there is lost unless `overwrite` says so."""
    seed = secrets.randbits(64) if options.seed is None else options.seed
    manifest = Manifest(scan.sha256, scan.requests, options.order, options.settings, int(time.time()), seed)
    side = side_path(target)
    output = RecordFile(target)
    try:
        begun = output.size > 0 or (side.is_file() and side.stat().st_size > 0)
        if begun and not options.overwrite:
            manifest = _earlier(target, manifest, options.resume)
        else:
            output.clear()
            side.unlink(missing_ok=True)
            manifest.save(manifest_path(target))
        if options.order == "completion":
            return CompletionOrder(output, scan.last_line), manifest
        return InputOrder(output, RecordFile(side), scan.last_line), manifest
    except BaseException:
        output.close()
        raise


def _earlier(target: Path, manifest: Manifest, resume: bool) -> Manifest:
    """The manifest of the run that is to be continued. Raises `InputFileError` when it is not this one."""
    if not resume:
        raise InputFileError(f"{target} holds records: continue it with --resume, or start again with --overwrite")
    earlier = Manifest.load(manifest_path(target))
    if earlier is None:
        raise InputFileError(f"{target} has no manifest beside it: it cannot be resumed; start again with --overwrite")
    if changed := manifest.differences(earlier):
        raise InputFileError(
            f"{target} was begun by a different run ({'; '.join(changed)}): undo that, or start again with --overwrite"
        )
    return earlier
