"""`deepinfer usage FILE`: the tokens in a file of answers that `deepinfer run-batch` wrote."""

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from pathlib import Path

from deepinfer_core.api.errors import InputFileError

HELP = "count the tokens in a file of answers"


def configure(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("file", type=Path)


def run(args: Namespace) -> int:
    """Print the totals. Returns 1 when a request of the file failed, else 0."""
    try:
        totals = _count(args.file)
    except OSError as error:
        raise InputFileError(f"{args.file} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputFileError(f"{args.file} is no file of answers: give one that run-batch wrote") from error
    for name in ("prompt_tokens", "completion_tokens", "failed"):
        print(f"{name}: {totals[name]}")
    return 1 if totals["failed"] else 0


def _count(file: Path) -> Counter[str]:
    totals: Counter[str] = Counter()
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record["error"] is not None:
                totals["failed"] += 1
                continue
            usage = record["response"]["body"]["usage"]
            totals["prompt_tokens"] += usage["prompt_tokens"]
            totals["completion_tokens"] += usage["completion_tokens"]
    return totals
