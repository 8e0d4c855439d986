"""The fenced blocks of a tutorial, and what becomes of each: it is run, written to a file, or expected to be shown.

```sh run            a shell command, in the scratch folder; `run exit=1` when it must end so
```text shows        lines of the output of the command before, in order; `...` stands for anything
```python write=F    the content of the file F, in the scratch folder; also toml
```toml waivers      a waiver file that the suite accepts
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_INFO = re.compile(
    r"sh (?P<run>run)( exit=(?P<code>\d+))?|text (?P<shows>shows)"
    r"|(python|toml) write=(?P<path>\S+)|toml (?P<waivers>waivers)"
)


@dataclass(frozen=True, slots=True)
class Block:
    """One block. Exactly one of `command`, `lines`, `file` and `waivers` says what becomes of its text."""

    line: int  # of the page
    text: str
    command: bool = False
    exit_code: int = 0
    lines: bool = False
    file: str | None = None
    waivers: bool = False


def read_blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order. Every block must say what becomes of it."""
    content = page.read_text(encoding="utf-8")
    blocks = []
    for fence in _FENCE.finditer(content):
        line = content.count("\n", 0, fence.start()) + 1
        info = _INFO.fullmatch(fence["info"])
        assert info is not None, f"{page.name}:{line}: nothing runs a block marked {fence['info']!r}"
        blocks.append(
            Block(
                line,
                fence["text"],
                command=info["run"] is not None,
                exit_code=int(info["code"] or 0),
                lines=info["shows"] is not None,
                file=info["path"],
                waivers=info["waivers"] is not None,
            )
        )
    return blocks


def missing_lines(expected: str, output: str) -> list[str]:
    """The lines of `expected` that `output` does not show in that order. Outer spaces do not count."""
    shown = iter(output.splitlines())
    return [line for line in expected.splitlines() if not any(_fits(line, other) for other in shown)]


def _fits(line: str, other: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, line.strip().split("..."))), other.strip()) is not None
