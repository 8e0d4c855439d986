"""A run killed at any moment and gone on with equals one that was not: nothing lost, nothing doubled.

Two ways: every system call in turn is the last of a process that is simulated, and real processes are killed.
"""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from batch_bench import TOKENIZER, FailingLLM, prompts
from fake_llm import FakeLLM

from deepinfer_core.api.errors import DeviceError, InputFileError
from deepinfer_core.batchio.manifest import manifest_path

LINES = [*prompts(3), b"null", *prompts(6)[3:]]
ORDERS = pytest.mark.parametrize("order", ["input", "completion"])
PROGRAM = Path(__file__).with_name("batch_process.py")


class Killed(BaseException):
    """The process is no more."""


class System:
    """The system calls that change files. The one of the number `fatal` is the last: of a write half is done, of any
    other nothing, and whatever the dead process then tries fails."""

    def __init__(self, monkeypatch, fatal):
        self._fatal = fatal
        self._count = 0
        for name in ("pwrite", "ftruncate", "fsync", "replace", "unlink"):
            monkeypatch.setattr(os, name, self._guarded(name, getattr(os, name)))

    def _guarded(self, name, call):
        def guarded(*args, **kwargs):
            self._count += 1
            if self._count < self._fatal:
                return None if name == "fsync" else call(*args, **kwargs)
            if self._count == self._fatal and name == "pwrite":
                fd, data, offset = args
                call(fd, data[: len(data) // 2], offset)
            raise Killed

        return guarded


def run_llm(failing=()):
    return FailingLLM(*failing, seed=1)


def fresh(bench, order):
    """Nothing was done before."""
    bench.give(*LINES)
    return {}


def half_done(bench, order):
    bench.give(*LINES)
    with pytest.raises(DeviceError):
        bench.run(FakeLLM(TOKENIZER, seed=1, dies_after=3), order=order, seed=5)
    return {"resume": True}


def partly_failed(bench, order):
    bench.give(*LINES)
    bench.run(run_llm(["prompt 1", "prompt 3"]), order=order, seed=5)
    return {"retry_failed": True}


def grown(bench, order):
    bench.give(*LINES[:4])
    bench.run(order=order, seed=5)
    bench.give(*LINES)
    return {"resume": True}


def to_be_overwritten(bench, order):
    half_done(bench, order)
    return {"overwrite": True}


def by_line(records):
    return sorted(records, key=lambda record: record["id"])


@pytest.mark.usefixtures("instant_disk")
@ORDERS
@pytest.mark.parametrize("situation", [fresh, half_done, partly_failed, grown, to_be_overwritten])
def test_killed_at_every_system_call(new_bench, order, situation):
    bench, whole = new_bench(), new_bench()
    fresh(whole, order)
    whole.run(order=order, seed=5)
    how = situation(bench, order)
    before = bench.snapshot()
    for fatal in itertools.count(1):
        bench.restore(before)
        with pytest.MonkeyPatch.context() as patched:
            System(patched, fatal)
            try:
                bench.run(run_llm(), order=order, seed=5, **how)
                break
            except Killed:
                pass
        go_on = how if situation is partly_failed else {"resume": True}
        bench.run(run_llm(), order=order, seed=5, **go_on)
        assert by_line(bench.records_but_created()) == by_line(whole.records_but_created())
        assert set(bench.snapshot()) == {bench.target, manifest_path(bench.target)}
    assert fatal >= 8


@pytest.mark.usefixtures("instant_disk")
@ORDERS
def test_a_retry_killed_anywhere_loses_no_answer_and_is_resumed(new_bench, order):
    bench = new_bench()
    how = partly_failed(bench, order)
    before = bench.snapshot()
    answered = [record for record in bench.records() if record["response"]]
    for fatal in itertools.count(1):
        bench.restore(before)
        with pytest.MonkeyPatch.context() as patched:
            System(patched, fatal)
            try:
                bench.run(run_llm(), order=order, **how)
                break
            except Killed:
                pass
        bench.run(run_llm(), order=order, resume=True)
        assert [record["id"] for record in by_line(bench.records())] == [f"line-{line}" for line in range(1, 8)]
        assert all(record in bench.records() for record in answered)
    assert fatal >= 8


@pytest.mark.usefixtures("instant_disk")
def test_a_manifest_cut_at_every_byte_loses_nothing(bench):
    """Its own writing cannot leave it so: it is replaced as a whole."""
    bench.give(*prompts(2))
    bench.run()
    whole = manifest_path(bench.target).read_bytes()
    records = bench.target.read_bytes()
    for cut in range(len(whole) - 1):  # without its last newline it is whole
        manifest_path(bench.target).write_bytes(whole[:cut])
        with pytest.raises(InputFileError, match="is not a run's manifest"):
            bench.run(resume=True)
        assert bench.target.read_bytes() == records
    manifest_path(bench.target).write_bytes(whole)
    assert bench.run(resume=True).resumed == 2


@pytest.fixture
def process(bench):
    """Start a run of the bench's files in a process of its own. It prints a long line for every record and the pipe is
    small, so that it is never more than some 15 records ahead of the reader."""
    started = []

    def start(*options, **fields):
        command = [sys.executable, str(PROGRAM), str(bench.source), str(bench.target), *options]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, pipesize=4096, text=True, **fields))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()
        one.stdout.close()


def after_records(running, count):
    """Wait for so many records, or for the end."""
    return sum(1 for _ in itertools.islice(running.stdout, count))


@ORDERS
def test_a_process_killed_again_and_again(bench, new_bench, process, order):
    bench.give(*prompts(400))
    whole = new_bench()
    whole.source.write_bytes(bench.source.read_bytes())
    whole.run(order=order, seed=5)
    for records in (1, 2, 37, 90, 150):
        running = process(order)
        assert after_records(running, records) == records
        running.kill()
        assert running.wait() == -signal.SIGKILL
    last = process(order)
    assert 0 < after_records(last, 400) <= 400 - 280
    assert last.wait() == 0
    assert by_line(bench.records_but_created()) == by_line(whole.records_but_created())
    if order == "input":
        assert bench.records_but_created() == whole.records_but_created()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_told_to_stop_finishes_what_is_in_flight(bench, process, number):
    bench.give(*prompts(400))
    running = process("completion", stderr=subprocess.PIPE)
    after_records(running, 5)
    running.send_signal(number)
    rest = after_records(running, 400)
    assert running.wait() == 130
    assert "stopping: the requests in flight are finished first" in running.stderr.read()
    running.stderr.close()
    assert len(bench.records()) == 5 + rest < 400
    assert bench.target.read_bytes().endswith(b"\n")
