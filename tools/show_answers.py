"""Shows the first answers, and every error, of a file that `deepinfer run-batch` wrote."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SHOWN = 5  # answers
WIDTH = 100  # characters of an answer


def main() -> int:
    """Arguments: the file, and how many of its requests are meant to fail. 1 when another number did."""
    path, expected = sys.argv[1:]
    records = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    answered = [record for record in records if record["error"] is None]
    failed = [record for record in records if record["error"] is not None]
    for record in answered[:SHOWN]:
        print(f"{record['custom_id']}: {' | '.join(map(_short, _texts(record)))}")
    if find_spec("deepseek_recipe") is None:
        refused = [record for record in failed if record["error"]["code"] == "unsupported"]
        print(f"{len(refused)} chat requests were refused, because the package deepseek-recipe is not installed")
        failed = [record for record in failed if record not in refused]
    for record in failed:
        print(f"{record['custom_id'] or record['id']}: error: {record['error']['message']}")
    return int(len(failed) != int(expected))


def _texts(record: dict[str, Any]) -> Iterator[str]:
    for choice in record["response"]["body"]["choices"]:
        yield choice["text"] if "text" in choice else choice["message"]["content"] or ""


def _short(text: str) -> str:
    line = repr(text)
    return line if len(line) <= WIDTH else line[:WIDTH] + "..."


if __name__ == "__main__":
    sys.exit(main())
