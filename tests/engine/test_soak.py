"""Twenty thousand requests through one engine: what they held has come back, and memory is where it was."""

from __future__ import annotations

import gc
import random
import sys

from engine_kit import EXACT_REPLAY, Kit, Sizes, greedy, make_kit, solo

from deepinfer_core.engine.request import Request

REQUESTS = 20_000
SETTLED = 5_000  # by then every table and cache has its size
WAITING = 384  # requests in the engine at once: more than run together, and many a step, which costs less
SIZES = Sizes(slots=256, blocks=320, block_size=4, step_tokens=1024, max_length=40, prefix=EXACT_REPLAY)
LEAK = 0.1  # objects a request: one in ten that keeps something is a leak


def made(draw: random.Random) -> Request:
    """Short prompts, many of them alike in part, and one in a thousand that is refused."""
    if draw.random() < 0.001:
        return greedy([], max_tokens=1)
    prompt = [8 + (7 * i) % 50 for i in range(draw.randrange(0, 10))] + draw.choices(range(8, 58), k=2)
    return greedy(prompt, max_tokens=draw.choice([1, 1, 1, 1, 1, 1, 2, 28]), ignore_eos=True)


class Soak:
    """Keeps the engine full until all requests were answered; aborts some, compares one in two hundred."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.draw = random.Random(0)
        self.open: dict[int, tuple[int, Request]] = {}
        self.begun = self.ended = self.aborted = 0

    def serve(self, total: int) -> None:
        while self.ended < total:
            while self.begun < total and len(self.open) < WAITING:
                one = made(self.draw)
                self.open[self.kit.engine.add(one)] = (self.begun, one)
                self.begun += 1
            if self.draw.random() < 0.3:
                key = self.draw.choice(list(self.open))
                self.kit.engine.abort(key)
                self.aborted += 1
            self._step()

    def _step(self) -> None:
        for finished in self.kit.engine.step():
            number, one = self.open.pop(finished.key)
            self.ended += 1
            output = finished.output
            whole = all(answer.finish_reason != "abort" for answer in output.outputs)
            if number % 200 == 0 and whole and output.error is None:
                assert output.outputs == solo(one).outputs
        if self.ended % 50 == 0:
            self.kit.scheduler.check()


def test_twenty_thousand_requests_leave_nothing_behind() -> None:
    soak = Soak(make_kit(SIZES))
    soak.serve(SETTLED)
    gc.collect()
    before = sys.getallocatedblocks()
    soak.serve(REQUESTS)
    gc.collect()
    after = sys.getallocatedblocks()
    stats = soak.kit.engine.stats()
    assert soak.aborted > 100
    assert stats.preemptions > 100
    assert stats.evictions > 1_000
    assert stats.hit_tokens > 10_000
    while soak.kit.engine.has_unfinished():
        soak.kit.engine.step()
    soak.kit.scheduler.check()
    soak.kit.assert_idle()
    assert after - before < LEAK * (REQUESTS - SETTLED)
    soak.kit.engine.close()
