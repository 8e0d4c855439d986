"""Answering failed requests again: errors go, everything else stays, whenever the run is cut short."""

import pytest
from batch_bench import FailingLLM, prompts

from deepinfer_core.api.errors import ConfigError, DeviceError, InputFileError
from deepinfer_core.batchio.recordfile import RecordFile
from deepinfer_core.batchio.writer import side_path

FAILING = ("prompt 1", "prompt 4")
ORDERS = pytest.mark.parametrize("order", ["input", "completion"])


@pytest.fixture
def failed(bench):
    """A run of 7 lines, of which two failed for no fault of theirs and one is no request."""

    def begin(order):
        bench.give(*prompts(3), b"null", *prompts(6)[3:])
        bench.run(FailingLLM(*FAILING), order=order, seed=5)
        return bench

    return begin


def codes(bench):
    return {int(record["id"].removeprefix("line-")): (record["error"] or {}).get("code") for record in bench.records()}


@ORDERS
def test_resume_keeps_every_record(failed, order):
    bench = failed(order)
    before = bench.target.read_bytes()
    summary = bench.run(order=order, resume=True)
    assert (summary.resumed, summary.resumed_failed) == (7, 3)
    assert bench.target.read_bytes() == before


@ORDERS
def test_errors_are_answered_again_and_nothing_else(failed, order):
    bench = failed(order)
    before = {record["id"]: record for record in bench.records()}
    summary = bench.run(order=order, retry_failed=True)
    assert (summary.resumed, summary.resumed_failed, summary.succeeded, summary.failed) == (4, 0, 2, 1)
    assert len(bench.records()) == 7
    assert codes(bench) == {1: None, 2: None, 3: None, 4: "invalid_request", 5: None, 6: None, 7: None}
    assert {record["id"] for record in bench.records() if record == before[record["id"]]} == {
        f"line-{line}" for line in (1, 3, 4, 5, 7)
    }
    assert not side_path(bench.target).exists()


def test_input_order_stays_the_order_of_the_lines(failed):
    bench = failed("input")
    bench.run(retry_failed=True)
    assert list(codes(bench)) == [1, 2, 3, 4, 5, 6, 7]


def test_the_answers_are_those_of_a_run_in_which_nothing_failed(failed, new_bench):
    bench, whole = failed("input"), new_bench()
    bench.run(retry_failed=True)
    whole.source.write_bytes(bench.source.read_bytes())
    whole.run(seed=5)
    assert bench.records_but_created() == whole.records_but_created()


@ORDERS
def test_what_fails_again_has_one_record(failed, order):
    bench = failed(order)
    for _ in range(3):
        summary = bench.run(FailingLLM(*FAILING), order=order, retry_failed=True)
        assert (summary.resumed, summary.failed) == (4, 3)
        assert sorted(codes(bench)) == [1, 2, 3, 4, 5, 6, 7]


@ORDERS
def test_without_errors_it_is_a_resume(bench, order):
    bench.give(*prompts(3))
    bench.run(order=order)
    before = bench.target.read_bytes()
    assert bench.run(order=order, retry_failed=True).resumed == 3
    assert bench.target.read_bytes() == before
    assert len(bench.llms) == 1


@ORDERS
def test_a_retry_that_dies_is_resumed(failed, order):
    bench = failed(order)
    with pytest.raises(DeviceError):
        bench.run(FailingLLM(dies_after=1), order=order, retry_failed=True)
    assert bench.run(order=order, resume=True).succeeded == 1
    assert sorted(codes(bench)) == [1, 2, 3, 4, 5, 6, 7]


def test_errors_that_wait_in_the_side_file_are_dropped_too(bench):
    """Lines that finished before the first line did."""
    bench.give(*prompts(8))
    with pytest.raises(DeviceError):
        bench.run(FailingLLM(*(f"prompt {place}" for place in range(1, 8)), dies_after=5, seed=1), seed=5)
    assert side_path(bench.target).stat().st_size > 0
    bench.run(retry_failed=True)
    assert list(codes(bench).values()) == [None] * 8


def test_answers_that_wait_in_the_side_file_are_kept(bench):
    bench.give(*prompts(8))
    with pytest.raises(DeviceError):
        bench.run(FailingLLM("prompt 0", dies_after=6, seed=1), seed=5)
    waiting = side_path(bench.target).read_bytes().count(b"\n")
    written = len(bench.records())
    assert waiting > 1
    failed = bench.target.read_bytes().count(b"generation_failed")
    assert bench.run(retry_failed=True).resumed == written + waiting - failed
    assert list(codes(bench).values()) == [None] * 8


def test_no_room_for_what_is_set_aside_drops_nothing(failed, monkeypatch):
    bench = failed("input")
    before = bench.snapshot()

    def full(file, line):
        raise InputFileError("no room")

    monkeypatch.setattr(RecordFile, "append", full)
    with pytest.raises(InputFileError, match="no room"):
        bench.run(retry_failed=True)
    assert bench.snapshot() == before | {side_path(bench.target): b""}
    assert sorted(path.name for path in bench.target.parent.iterdir()) == [
        "in.jsonl",
        "out.jsonl",
        "out.jsonl.manifest.json",
        "out.jsonl.waiting",
    ]


def test_another_run_is_not_retried(failed):
    bench = failed("input")
    before = bench.snapshot()
    with pytest.raises(InputFileError, match="model: None then, 'b' now"):
        bench.run(retry_failed=True, settings={"model": "b"})
    assert bench.snapshot() == before


def test_retry_and_overwrite_exclude_each_other(failed):
    with pytest.raises(ConfigError, match="retry_failed and overwrite exclude each other"):
        failed("input").run(retry_failed=True, overwrite=True)
