"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.observe.files import check_target, replace_file


def breaking() -> Iterator[bytes]:
    yield b"half"
    raise ZeroDivisionError


def test_a_file_is_replaced_by_all_parts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    replace_file(path, [b"one", b"two"])
    assert path.read_bytes() == b"onetwo"
    assert list(tmp_path.iterdir()) == [path]


def test_what_breaks_off_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError):
        replace_file(path, breaking())
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")
    replace_file(link, [b"new"])
    assert link.is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_pipe_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    replace_file(pipe, [b"one", b"two"])
    assert pipe.is_fifo()
    assert os.read(reader, 100) == b"onetwo"
    os.close(reader)


def test_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="/dev/full cannot be written: No space left on device"):
        replace_file(Path("/dev/full"), [b"one"])


def test_places_where_no_file_can_be(tmp_path: Path) -> None:
    check_target(tmp_path / "file")
    with pytest.raises(ConfigError, match="is a folder: give the name of a file"):
        check_target(tmp_path)
    with pytest.raises(ConfigError, match="nowhere is not a folder: make it"):
        check_target(tmp_path / "nowhere" / "file")
