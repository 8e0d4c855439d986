"""A disk that is full, or fails, at any write: a message that says what to do, whole lines, and a run that goes on."""

import errno
import itertools
import os
import resource

import pytest
from batch_bench import TOKENIZER, prompts
from fake_llm import FakeLLM

from deepinfer_core.api.errors import InputFileError

ORDERS = pytest.mark.parametrize("order", ["input", "completion"])


class Disk:
    """Room for so many bytes in all. A write that does not fit is cut short, the next one fails."""

    def __init__(self, monkeypatch, room):
        write = os.pwrite

        def pwrite(fd, data, offset):
            nonlocal room
            if not room:
                raise OSError(errno.ENOSPC, "No space left on device")
            written = write(fd, data[:room], offset)
            room -= written
            return written

        monkeypatch.setattr(os, "pwrite", pwrite)


def whole_lines(bench):
    return all(
        not content or content.endswith(b"\n")
        for path, content in bench.snapshot().items()
        if not path.name.endswith(".json")
    )


def run(bench, order):
    return bench.run(FakeLLM(TOKENIZER, seed=1), order=order, seed=5, resume=True)


@pytest.mark.usefixtures("instant_disk")
@ORDERS
def test_full_anywhere(new_bench, order):
    bench, whole = new_bench(), new_bench()
    for one in (bench, whole):
        one.give(*prompts(3), b"null")
    run(whole, order)
    for room in itertools.count(0, 17):
        bench.restore({})
        said = said_when_full(bench, order, room)
        if said is None:
            break
        assert "No space left on device; whole records stay: make room, then go on with --resume" in said
        assert whole_lines(bench)
        run(bench, order)
        assert bench.records_but_created() == whole.records_but_created()
    assert room > 1000


def said_when_full(bench, order, room):
    """The refusal of a run on a disk with so much room; None when that is enough."""
    with pytest.MonkeyPatch.context() as patched:
        Disk(patched, room)
        try:
            run(bench, order)
        except InputFileError as error:
            return str(error)
    return None


@pytest.mark.usefixtures("instant_disk")
@ORDERS
def test_full_again_and_again_with_a_little_more_room_each_time(bench, order):
    bench.give(*prompts(12))
    attempts = 0
    while said_when_full(bench, order, 1100) is not None:
        attempts += 1
        assert whole_lines(bench)
    assert attempts > 3
    assert sorted(bench.answers()) == sorted(f"r{index}" for index in range(12))


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_no_room_for_the_manifest(bench, monkeypatch, call):
    bench.give(*prompts(1))

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(InputFileError, match=r"No space left on device"):
        bench.run()
    monkeypatch.undo()
    assert bench.llms == []
    assert bench.run(resume=True).succeeded == 1


def test_a_file_that_may_not_grow(bench):
    """The system's own limit, which stands in for a full disk without a disk."""
    bench.give(*prompts(30))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(InputFileError, match=r"out\.jsonl.* cannot be written: File too large"):
            run(bench, "completion")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert 0 < len(bench.records()) < 30
    assert whole_lines(bench)
    run(bench, "completion")
    assert len(bench.records()) == len(bench.answers()) == 30


def test_a_disk_that_cannot_take_a_torn_line_back(bench, monkeypatch):
    """Then the line stays torn, and the next run drops it."""
    bench.give(*prompts(6))
    Disk(monkeypatch, 1500)

    def fail(fd, size):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(InputFileError, match="cannot be written: Input/output error"):
        run(bench, "completion")
    monkeypatch.undo()
    assert not whole_lines(bench)
    run(bench, "completion")
    assert len(bench.records()) == len(bench.answers()) == 6
