"""A file of whole lines that outlives a kill, a full disk and a second writer."""

import errno
import os

import pytest

from deepinfer_core.api.errors import InputFileError
from deepinfer_core.batchio import recordfile
from deepinfer_core.batchio.recordfile import SYNC_SECONDS, RecordFile


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.jsonl"


def test_lines_are_in_the_file_at_once(path):
    file = RecordFile(path)
    file.append(b"one\n")
    assert path.read_bytes() == b"one\n"
    file.close()


def test_it_goes_on_where_the_file_ends(path):
    path.write_bytes(b"one\n")
    file = RecordFile(path)
    assert list(file.lines()) == [(0, b"one")]
    assert file.append(b"two\n") == 4
    assert file.read(4, 4) == b"two\n"
    file.close()
    assert path.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("torn", [b"t", b"two", b"two\nthr", b"\n\xff\x00"])
def test_a_torn_line_is_dropped(path, torn):
    path.write_bytes(b"one\n" + torn)
    file = RecordFile(path)
    kept = [line for _, line in file.lines()]
    file.close()
    assert path.read_bytes() == b"".join(line + b"\n" for line in kept)
    assert kept[0] == b"one"


def test_a_second_writer_is_refused(path):
    file = RecordFile(path)
    with pytest.raises(InputFileError, match="written by another run"):
        RecordFile(path)
    file.close()
    RecordFile(path).close()


@pytest.mark.parametrize("name", ["/dev/null", "."])
def test_what_is_not_a_file_is_refused(name):
    with pytest.raises(InputFileError, match="not a regular file|directory"):
        RecordFile(recordfile.Path(name))


def test_a_full_disk_leaves_whole_lines(path, monkeypatch):
    file = RecordFile(path)
    file.append(b"one\n")
    room = 2

    def write_until_full(fd, data, offset, *, pwrite=os.pwrite):
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        room -= 1
        return pwrite(fd, data[:1], offset)

    monkeypatch.setattr(os, "pwrite", write_until_full)
    with pytest.raises(InputFileError, match="No space left on device; .* --resume"):
        file.append(b"two\n")
    monkeypatch.undo()
    assert path.read_bytes() == b"one\n"
    file.append(b"three\n")
    file.close()
    assert path.read_bytes() == b"one\nthree\n"


def test_short_writes_are_completed(path, monkeypatch):
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset, pwrite=os.pwrite: pwrite(fd, data[:3], offset))
    file = RecordFile(path)
    file.append(b"a longer line\n")
    file.close()
    assert path.read_bytes() == b"a longer line\n"


def test_lines_in_quick_succession_share_a_sync(path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    clock = Clock()
    file = RecordFile(path, clock)
    for _ in range(5):
        file.append(b"line\n")
    assert len(synced) == 0
    clock.now += SYNC_SECONDS
    file.append(b"line\n")
    assert len(synced) == 1
    file.close()
    assert len(synced) == 2


def test_a_disk_that_fails_to_sync_is_an_error(path, monkeypatch):
    file = RecordFile(path)

    def fail(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputFileError, match="Input/output error"):
        file.close()
