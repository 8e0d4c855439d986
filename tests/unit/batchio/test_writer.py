"""Which lines get a record, and in which order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.errors import InputFileError, RequestError
from deepinfer_core.batchio.jsonl import encode_line
from deepinfer_core.batchio.recordfile import RecordFile
from deepinfer_core.batchio.records import error_record
from deepinfer_core.batchio.writer import CompletionOrder, InputOrder, side_path

LAST = 9


def record(line):
    return error_record(line, f"r{line}", RequestError("no"))


def raw(*lines):
    return b"".join(encode_line(record(line)) for line in lines)


def in_completion_order(output):
    return CompletionOrder(RecordFile(output), RecordFile(side_path(output)), LAST)


def in_input_order(output):
    return InputOrder(RecordFile(output), RecordFile(side_path(output)), LAST)


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out.jsonl"


def test_completion_order(output):
    writer = in_completion_order(output)
    assert all(writer.wanted(line) for line in (1, 2, 3))
    for line in (3, 1, 2):
        writer.write(line, record(line))
    writer.close()
    assert output.read_bytes() == raw(3, 1, 2)


@given(st.permutations([1, 2, 4, 7, 9]))
def test_input_order_whatever_the_order_of_completion(tmp_path_factory, order):
    output = tmp_path_factory.mktemp("run") / "out.jsonl"
    writer = in_input_order(output)
    assert all(writer.wanted(line) for line in sorted(order))
    for count, line in enumerate(order, 1):
        writer.write(line, record(line))
        ready = [
            known for place, known in enumerate(sorted(order)) if set(sorted(order)[: place + 1]) <= set(order[:count])
        ]
        assert output.read_bytes() == raw(*ready)
    writer.close()
    assert not side_path(output).exists()


def test_what_comes_too_early_is_safe_in_the_side_file(output):
    writer = in_input_order(output)
    assert writer.wanted(1)
    assert writer.wanted(2)
    writer.write(2, record(2))
    writer.close()
    assert output.read_bytes() == b""
    assert side_path(output).read_bytes() == raw(2)


def test_completion_order_takes_what_a_retry_set_aside(output):
    output.write_bytes(raw(4))
    side_path(output).write_bytes(raw(2, 4, 3))
    writer = in_completion_order(output)
    assert writer.done == 3
    assert not side_path(output).exists()
    assert [line for line in range(1, 6) if writer.wanted(line)] == [1, 5]
    writer.write(5, record(5))
    writer.close()
    assert output.read_bytes() == raw(4, 2, 3, 5)


@pytest.mark.parametrize("make", [in_completion_order, in_input_order])
def test_a_line_with_a_record_is_not_wanted_again(output, make):
    output.write_bytes(raw(2, 5))
    writer = make(output)
    assert writer.done == 2
    assert [line for line in range(1, LAST + 1) if writer.wanted(line)] == [1, 3, 4, 6, 7, 8, 9]
    writer.close()


def test_a_line_waiting_in_the_side_file_is_not_wanted_and_is_placed(output):
    output.write_bytes(raw(1))
    side_path(output).write_bytes(raw(3, 4))
    writer = in_input_order(output)
    assert writer.done == 3
    assert [line for line in range(1, 6) if writer.wanted(line)] == [2, 5]
    writer.write(5, record(5))
    writer.write(2, record(2))
    writer.close()
    assert output.read_bytes() == raw(1, 2, 3, 4, 5)
    assert not side_path(output).exists()


def test_a_record_in_both_files_counts_once(output):
    output.write_bytes(raw(1, 2))
    side_path(output).write_bytes(raw(2))
    writer = in_input_order(output)
    assert writer.done == 2
    assert [line for line in (1, 2, 3) if writer.wanted(line)] == [3]
    writer.write(3, record(3))
    writer.close()
    assert output.read_bytes() == raw(1, 2, 3)


def test_a_record_that_cannot_be_moved_stays_in_the_side_file(output, monkeypatch):
    writer = in_input_order(output)
    assert all(writer.wanted(line) for line in (1, 2))
    writer.write(2, record(2))
    append = RecordFile.append

    def no_room_for_the_second(file, line):
        if file.path == output and line == raw(2):
            raise InputFileError("no room")
        return append(file, line)

    monkeypatch.setattr(RecordFile, "append", no_room_for_the_second)
    with pytest.raises(InputFileError, match="no room"):
        writer.write(1, record(1))
    writer.close()
    assert output.read_bytes() == raw(1)
    assert side_path(output).read_bytes() == raw(2)


@pytest.mark.parametrize("line", [b"{}", b"null", b"hello", b'{"id": "line-10"}', b'{"id": "line-0"}', b"\xff"])
def test_a_file_that_is_not_this_runs_is_refused(output, line):
    output.write_bytes(raw(1) + line + b"\n")
    with pytest.raises(InputFileError, match="line 2, is no record of this run"):
        in_completion_order(output)
