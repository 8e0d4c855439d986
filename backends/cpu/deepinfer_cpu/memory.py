"""How much memory the host can give: what the kernel calls available, or less where a control group says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def read_memory(root: Path = Path("/")) -> tuple[int, int]:
    """(free, total) bytes: the least over the machine and every control group that this process is in."""
    bounds = [_machine(root), *_version_2(root), *_version_1(root)]
    return max(0, min(free for free, _ in bounds)), min(total for _, total in bounds)


def _machine(root: Path) -> tuple[int, int]:
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux: all that POSIX knows is the total
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total, total
    kibibytes = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return kibibytes["MemAvailable"] * 1024, kibibytes["MemTotal"] * 1024


def _version_2(root: Path) -> Iterator[tuple[int, int]]:
    for folder in _folders(root, root / "sys/fs/cgroup", ""):
        limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
        if limit is not None and used is not None:
            yield limit - used + _stat(folder, "inactive_file"), limit


def _version_1(root: Path) -> Iterator[tuple[int, int]]:
    for folder in _folders(root, root / "sys/fs/cgroup/memory", "memory"):
        limit, used = _number(folder / "memory.limit_in_bytes"), _number(folder / "memory.usage_in_bytes")
        if limit is not None and used is not None and limit < 1 << 60:  # "no limit" is a huge number there
            yield limit - used + _stat(folder, "total_inactive_file"), limit


def _folders(root: Path, mount: Path, controller: str) -> Iterator[Path]:
    """This process's group in the hierarchy of `controller` (empty: version 2), and its parents."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            group = Path(path.lstrip("/"))
            yield from (mount / part for part in (group, *group.parents))


def _number(path: Path) -> int | None:
    """The file's number; None where there is no file or no limit (`max`)."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _stat(folder: Path, name: str) -> int:
    """A field of the group's memory.stat: file pages that the kernel gives back on demand count as used otherwise."""
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), 0)
