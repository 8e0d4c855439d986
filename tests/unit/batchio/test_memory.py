"""Memory does not grow with the input: the size of the process at several moments of one long run."""

import os
import tracemalloc
from pathlib import Path

import pytest

from deepinfer_core.api.outputs import CompletionOutput, RequestOutput
from deepinfer_core.observe.progress import NoProgress

LINES = 200_000
EARLY, LATE = 20_000, 199_000
REQUESTS = 50  # one line in so many is a request; the others are quicker to refuse than to answer
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident():
    """Bytes of memory that the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


class QuickLLM:
    """Answers in the order of the requests, but for the first `held`, which come last."""

    tokenizer = None
    max_length = 1024

    def __init__(self, held=0):
        self._held = held

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def stream(self, requests):
        first = [next(requests) for _ in range(self._held)]
        for group in (requests, first):
            for request in group:
                ids = request.prompt_token_ids
                answer = CompletionOutput(0, "", ids, "length")
                yield RequestOutput(request.request_id, None, ids, (answer,), seed=1)


class Measured(NoProgress):
    """Measures when the input has been checked, and when so many records are written."""

    def __init__(self, measure, *counts):
        self._measure = measure
        self._counts = counts
        self._count = 0
        self.found = {}

    def start(self, total, done):
        self.found["checked"] = self._measure()

    def advance(self, tokens):
        self._count += 1
        if self._count in self._counts:
            self.found[self._count] = self._measure()


def give_lines(bench, count, every):
    with bench.source.open("w") as file:
        for line in range(count):
            asked = '"prompt": [5, 6, 7], "max_tokens": 3' if line % every == 0 else '"method": "POST"'
            file.write(f'{{"custom_id": "request number {line}", {asked}}}\n')


@pytest.mark.usefixtures("instant_disk")
def test_a_long_run_holds_no_more_than_a_short_one(bench):
    give_lines(bench, LINES, REQUESTS)
    measured = Measured(resident, EARLY, LATE)
    before = resident()
    summary = bench.run(QuickLLM(), progress=measured)
    assert (summary.succeeded, summary.requests) == (LINES // REQUESTS, LINES)
    assert measured.found["checked"] - before < 300 * LINES  # a hash and a number for each custom_id
    assert measured.found[LATE] - measured.found[EARLY] < 10 * (LATE - EARLY)


@pytest.mark.usefixtures("instant_disk")
def test_what_waits_for_a_slow_first_line_waits_on_the_disk(bench):
    lines = 1000
    give_lines(bench, lines, 1)
    with bench.source.open("a") as file:
        file.write(f'{{"custom_id": "{"x" * 100}", "prompt": [5]}}\n')
    measured = Measured(lambda: tracemalloc.get_traced_memory()[0], 200, lines - 200)
    tracemalloc.start()
    try:
        bench.run(QuickLLM(held=1), progress=measured)
    finally:
        tracemalloc.stop()
    record = bench.target.stat().st_size / lines
    grown = (measured.found[lines - 200] - measured.found[200]) / (lines - 400)
    assert 0 < grown < 350 < record  # where it lies, and that it is due
