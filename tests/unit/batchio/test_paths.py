"""Which files a run takes, and that one it cannot use is named before anything is made."""

import errno
import os
from pathlib import Path

import pytest
from batch_bench import prompts

from deepinfer_core.api.errors import InputFileError
from deepinfer_core.batchio.jsonl import MAX_LINE_BYTES
from deepinfer_core.batchio.manifest import manifest_path
from deepinfer_core.batchio.writer import side_path


def refused(bench, message, **options):
    """Refused with exit code 2, and nothing was loaded or made."""
    before = set(bench.target.parent.iterdir()) if bench.target.parent.is_dir() else None
    with pytest.raises(InputFileError, match=message) as caught:
        bench.run(**options)
    assert caught.value.exit_code == 2
    assert bench.llms == []
    assert before is None or set(bench.target.parent.iterdir()) == before


def the_same_name(source, target):
    return source


def a_hard_link(source, target):
    target.hardlink_to(source)
    return target


def a_symbolic_link(source, target):
    target.symlink_to(source)
    return target


def a_link_to_a_link(source, target):
    between = target.with_name("between")
    between.symlink_to(source)
    target.symlink_to(between)
    return target


@pytest.mark.parametrize("link", [the_same_name, a_hard_link, a_symbolic_link, a_link_to_a_link])
@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}])
def test_the_same_file_is_refused(bench, link, options):
    bench.give(*prompts(1))
    before = bench.source.read_bytes()
    bench.target = link(bench.source, bench.target)
    refused(bench, "input and output are the same file", **options)
    assert bench.source.read_bytes() == before


@pytest.mark.parametrize("ours", [side_path, manifest_path])
@pytest.mark.parametrize("link", [a_hard_link, a_symbolic_link])
def test_the_input_may_not_stand_where_a_file_of_ours_goes(bench, ours, link):
    bench.give(*prompts(1))
    before = bench.source.read_bytes()
    link(bench.source, ours(bench.target))
    refused(bench, "are the same file", overwrite=True)
    assert bench.source.read_bytes() == before


def test_a_link_that_goes_round_in_a_circle(bench):
    bench.give(*prompts(1))
    bench.target.symlink_to(bench.target)
    with pytest.raises(InputFileError, match=r"out\.jsonl"):
        bench.run()


def test_a_missing_input(bench):
    refused(bench, r"in\.jsonl does not exist")


def test_standard_input(bench):
    bench.source = Path("-")
    refused(bench, "standard input cannot be read twice")


def test_an_input_that_is_a_folder(bench):
    bench.source.mkdir()
    refused(bench, r"in\.jsonl is a folder")


def test_an_input_that_is_a_pipe_is_not_even_opened(bench):
    os.mkfifo(bench.source)
    refused(bench, "is a pipe or a device, which cannot be read twice")


def test_an_input_that_may_not_be_read(bench, monkeypatch):
    bench.give(*prompts(1))

    def forbidden(path, *args):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", forbidden)
    refused(bench, r"in\.jsonl cannot be read: Permission denied")


def test_an_input_whose_disk_fails(bench, monkeypatch):
    bench.give(*prompts(3))

    def broken(file, digest):
        yield 1, file.readline()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("deepinfer_core.batchio.reader.read_lines", broken)
    refused(bench, r"in\.jsonl cannot be read: Input/output error")


def test_an_empty_input_is_done(bench):
    bench.give()
    summary = bench.run()
    assert (summary.requests, summary.failed) == (0, 0)
    assert bench.target.read_bytes() == b""
    assert bench.llms == []


def test_blank_lines_alone_are_done(bench):
    bench.source.write_bytes(b"\n \t\r\n\n")
    assert bench.run().requests == 0
    assert bench.records() == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_an_input_in_utf16(bench, encoding):
    bench.source.write_bytes(("\ufeff" * (encoding != "utf-16") + '{"custom_id": "a"}\n').encode(encoding))
    refused(bench, "is UTF-16 text: save it as UTF-8")


def test_bytes_that_are_not_utf8_are_an_error_of_their_line(bench):
    bench.source.write_bytes(
        '{"custom_id": "ü", "prompt": "p"}\n'.encode("latin-1") + b'{"custom_id": "b", "prompt": "p"}'
    )
    bench.run()
    first, second = bench.records()
    assert "the line is not UTF-8: invalid start byte at byte 15" in first["error"]["message"]
    assert second["response"] is not None


def test_a_line_of_enormous_length_is_an_error_and_its_neighbours_are_answered(bench):
    bench.give(*prompts(1))
    with bench.source.open("ab") as file:
        file.truncate(file.tell() + MAX_LINE_BYTES + 1)  # a hole: zeros that take no room
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"custom_id": "last", "prompt": "p"}\n')
    bench.run()
    first, long, last = bench.records()
    assert first["response"] is not None
    assert last["custom_id"] == "last"
    assert last["response"] is not None
    assert long["error"] == {
        "code": "invalid_request",
        "message": f"the line is longer than {MAX_LINE_BYTES} bytes",
        "line": 2,
    }


def test_an_output_that_is_a_folder(bench):
    bench.give(*prompts(1))
    bench.target.mkdir()
    refused(bench, r"out\.jsonl cannot be written: Is a directory", overwrite=True)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/null")])
def test_an_output_that_is_no_regular_file(bench, make):
    bench.give(*prompts(1))
    make(bench.target)
    refused(bench, r"out\.jsonl is not a regular file")


@pytest.mark.parametrize("target", ["", "/"])
def test_an_output_without_a_name(bench, target):
    bench.give(*prompts(1))
    bench.target = Path(target)
    refused(bench, "is not a file")


def test_a_folder_that_does_not_exist(bench, tmp_path):
    bench.give(*prompts(1))
    bench.target = tmp_path / "nowhere" / "out.jsonl"
    refused(bench, "nowhere is not a folder: make it")


def test_a_folder_that_is_a_file(bench):
    bench.give(*prompts(1))
    bench.target = bench.source / "out.jsonl"
    refused(bench, r"in\.jsonl is not a folder: make it")


def test_a_folder_that_may_not_be_written(bench, monkeypatch):
    bench.give(*prompts(1))

    def forbidden(path, flags, *mode):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", forbidden)
    refused(bench, r"out\.jsonl cannot be written: Permission denied")


def test_an_output_whose_companions_have_too_long_names(bench):
    bench.give(*prompts(1))
    bench.target = bench.target.with_name("o" * 250)  # its own name fits, the manifest's does not
    refused(bench, "cannot be used: File name too long")


def test_a_custom_id_twice_is_refused_naming_both_lines(bench):
    bench.give(*prompts(2), b"", {"custom_id": "r1", "prompt": "x"}, {"custom_id": "r1", "prompt": "y"})
    refused(bench, "names requests twice: 'r1' on lines 2 and 4, 'r1' on lines 2 and 5; give each line")


def test_of_many_duplicates_a_few_are_named(bench):
    bench.give(*({"custom_id": str(place % 20), "prompt": "x"} for place in range(40)))
    refused(bench, "'4' on lines 5 and 25 and more")


def test_the_model_is_asked_for_only_when_the_input_is_valid_and_before_anything_is_made(bench):
    asked = []

    def identity():
        asked.append(set(bench.target.parent.iterdir()))
        return {}

    bench.give(*prompts(1), *prompts(1))
    refused(bench, "twice", identity=identity)
    assert asked == []
    bench.give(*prompts(1))
    bench.run(identity=identity)
    assert asked == [{bench.source}]
