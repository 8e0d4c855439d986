"""Engines over the fake model for tests, the answers they must give, and the running of requests through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import torch
from fake_model import DECODER_ROWS, EOS, INFO, SPEC, FakeModel, expected_logits

from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.cache.layout import CacheRequest, fit_cache
from deepinfer_core.engine.admission import Admission
from deepinfer_core.engine.engine import Engine, EngineParts
from deepinfer_core.engine.request import Request
from deepinfer_core.engine.runner import Runner
from deepinfer_core.engine.tables import DeviceTables, history_rows, past_tokens
from deepinfer_core.interfaces.model import CachePools
from deepinfer_core.interfaces.scheduler import PrefixRules, SchedulerLimits
from deepinfer_core.ops.table import resolve
from deepinfer_core.sampling.sampler import Sampler
from deepinfer_core.sampling.table import SamplingTable
from deepinfer_core.scheduling.native import NativeScheduler

CPU = torch.device("cpu")
EXACT_REPLAY = PrefixRules(INFO.reach.keys, INFO.reach.kept, INFO.reach.logits, past_tokens(INFO))


class ThreadEvent:
    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def wait(self) -> Any:
        return self._future.result()


class ThreadQueue:
    """A queue of one worker thread. `submitted` counts what it was given."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self.submitted = 0

    def submit(self, fn: Callable[[], Any]) -> ThreadEvent:
        self.submitted += 1
        return ThreadEvent(self._pool.submit(fn))

    def close(self) -> None:
        self._pool.shutdown()


@dataclass(frozen=True)
class Sizes:
    """The limits of one engine."""

    slots: int = 8
    blocks: int = 256
    block_size: int = 4
    step_tokens: int = 64
    max_length: int = 64
    overlap: bool = True
    decoder_rows: int = DECODER_ROWS
    prefix: PrefixRules | None = None  # as EXACT_REPLAY; None: nothing is cached


ROOMY = Sizes()


@dataclass
class Kit:
    """An engine and what tests look at behind its back."""

    engine: Engine
    scheduler: NativeScheduler
    queue: ThreadQueue
    sizes: Sizes

    def assert_idle(self) -> None:
        """Everything has been given back."""
        stats = self.engine.stats()
        assert (stats.waiting, stats.running, stats.used_blocks) == (0, 0, 0)
        assert (stats.free_slots, stats.free_blocks + stats.cached_blocks) == (self.sizes.slots, self.sizes.blocks)
        assert self.sizes.prefix or stats.cached_blocks == 0
        assert not self.engine.has_unfinished()


def make_kit(
    sizes: Sizes = ROOMY,
    *,
    model: FakeModel | None = None,
    tokenizer: Any = None,
    constraints: Mapping[str, Any] | None = None,
    processors: Mapping[str, Any] | None = None,
    observers: Sequence[Any] = (),
    replay: Literal["exact", "bounded"] = "exact",
    seed: int = 0,
) -> Kit:
    """An engine over the fake model. Its caches begin as noise, so that nothing may be read before it is written."""
    spec, model = SPEC, model or FakeModel()
    layout = fit_cache(
        spec,
        CacheRequest(
            slots=sizes.slots,
            block_size=sizes.block_size,
            step_tokens=sizes.step_tokens,
            max_length=sizes.max_length,
            cache_tokens=sizes.blocks * sizes.block_size,
            memory_share=1.0,
            free_bytes=1 << 40,
        ),
    )
    noise = torch.Generator().manual_seed(1)

    def pool(rows: int) -> torch.Tensor:
        return torch.randint(0, 256, (rows, 8), dtype=torch.uint8, generator=noise)

    pools = CachePools(
        paged={p.name: pool(layout.paged_rows(p)) for p in spec.paged},
        rings={r.name: pool(layout.ring_rows(r)) for r in spec.rings},
        slots=sizes.slots,
        block_size=sizes.block_size,
    )
    admission = Admission(
        INFO,
        tokenizer,
        constraints or {},
        processors or {},
        max_length=sizes.max_length,
        decoder_rows=sizes.decoder_rows,
        seed=seed,
    )
    ring = history_rows(INFO, 0)
    tables = DeviceTables(sizes.slots, -(-sizes.max_length // sizes.block_size), ring, CPU)
    tables.history.fill_(-999)
    sampling = SamplingTable(sizes.slots, admission.vocab_size, CPU)
    sampler = Sampler(resolve({}), admission.vocab_size, processors=processors)
    scheduler = NativeScheduler(
        SchedulerLimits(
            sizes.slots, sizes.blocks, sizes.block_size, sizes.step_tokens, sizes.max_length, prefix=sizes.prefix
        )
    )
    queue = ThreadQueue()
    engine = Engine(
        EngineParts(
            admission=admission,
            scheduler=scheduler,
            runner=Runner(model, pools, tables, sampler, sampling, CPU),
            queue=queue,
            sampling=sampling,
            tokenizer=tokenizer,
            history_rows=ring,
            overlap=sizes.overlap,
            replay=replay,
            observers=observers,
        )
    )
    return Kit(engine, scheduler, queue, sizes)


def request(prompt: Sequence[int], name: str = "r", **params: Any) -> Request:
    return Request(name, prompt_token_ids=tuple(prompt), params=SamplingParams(**params))


def greedy(prompt: Sequence[int], name: str = "r", **params: Any) -> Request:
    return request(prompt, name, temperature=0.0, **params)


def run(kit: Kit, requests: Sequence[Request]) -> list[RequestOutput]:
    """Serve requests that all arrive at once; outputs in the order of the requests."""
    keys = [kit.engine.add(one) for one in requests]
    done: dict[int, RequestOutput] = {}
    while kit.engine.has_unfinished():
        for finished in kit.engine.step():
            assert finished.key not in done, "a request ended twice"
            done[finished.key] = finished.output
        kit.scheduler.check()
    return [done[key] for key in keys]


def solo(one: Request, sizes: Sizes = ROOMY) -> RequestOutput:
    """A request's outcome alone in an engine with room for everything."""
    kit = make_kit(sizes)
    (output,) = run(kit, [one])
    kit.engine.close()
    return output


def expected_greedy(prompt: Sequence[int], max_tokens: int, decoder_rows: int = DECODER_ROWS) -> list[int]:
    """The greedy answer by the model's definition, end-of-sequence included."""
    tokens = list(prompt)
    start = max(0, len(prompt) - decoder_rows) if decoder_rows else 0
    for _ in range(max_tokens):
        tokens.append(int(expected_logits(tokens, start).argmax()))
        if tokens[-1] in EOS:
            break
    return tokens[len(prompt) :]
