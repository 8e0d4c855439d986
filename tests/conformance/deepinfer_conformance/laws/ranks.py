"""Several ranks: a process each, which opens the backend, joins a group, and leaves its answers to laws in a file.

`python -m deepinfer_conformance.laws.ranks BACKEND LAWS SEED RANK COUNT FOLDER` is what a rank runs. The laws are in
`collective.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.distributed import FileStore  # type: ignore[attr-defined]  # missing from torch's stubs

from deepinfer_conformance.laws.watchdog import Hung

RANKS = 2
PATIENCE = 150.0  # seconds for all ranks, starting Python and the device included
RANK_PATIENCE = timedelta(seconds=60)  # that a rank waits for another

Answer = dict[str, Any]  # tensors on the host and plain data


def on_ranks(backend: str, law: str, laws: Sequence[str], seed: int) -> list[Answer]:
    """What each rank answers to `law`, in order of rank. `laws` are all that the backend can be asked: ranks are
    started once and asked for everything.

    Raises `AssertionError` with what a failed rank said, and `Hung` where they did not end.
    """
    found = _started(backend, tuple(laws), seed)
    if isinstance(found, Hung):
        raise found
    for rank, answers in enumerate(found):
        assert "error" not in answers[law], f"rank {rank} failed: {answers[law]['error']}"
    return [answers[law] for answers in found]


@cache
def _started(backend: str, laws: tuple[str, ...], seed: int) -> list[dict[str, Answer]] | Hung:
    with tempfile.TemporaryDirectory(prefix="deepinfer-ranks-") as name:
        words = [sys.executable, "-m", "deepinfer_conformance.laws.ranks", backend, ",".join(laws), str(seed)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ranks = [
            subprocess.Popen([*words, str(rank), str(RANKS), name], env=environment, stdout=subprocess.DEVNULL)
            for rank in range(RANKS)
        ]
        try:
            for one in ranks:
                one.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return Hung(f"{RANKS} ranks did not end within {PATIENCE:g} seconds")
        finally:
            for one in ranks:
                one.kill()
                one.wait()
        return [_answers(Path(name) / f"{rank}.pt", laws) for rank in range(RANKS)]


def _answers(file: Path, laws: tuple[str, ...]) -> dict[str, Answer]:
    if file.exists():
        found: dict[str, Answer] = torch.load(file)
        return found
    return {
        law: {"error": "it ended before it could answer; its own words are among the captured output"} for law in laws
    }


def main(words: list[str]) -> None:
    """Run as one rank."""
    from deepinfer_conformance.laws.collective import Rank
    from deepinfer_conformance.subject import open_subject
    from deepinfer_core.interfaces.parallel import Group

    backend, laws, seed, number, count, folder = words
    group = Group("world", tuple(range(int(count))), int(number))
    store = FileStore(f"{folder}/store", group.size)
    torch.distributed.init_process_group(
        "gloo", store=store, rank=group.rank, world_size=group.size, timeout=RANK_PATIENCE
    )
    subject = open_subject(backend)
    device = subject.device if len(subject.probe.devices) <= group.rank else subject.backend.open(group.rank)
    answers = _work(laws.split(","), Rank(subject, device, group, int(seed), store))
    torch.save(answers, f"{folder}/{group.rank}.pt")
    device.close()
    subject.close()


def _work(laws: Sequence[str], rank: Any) -> dict[str, Answer]:
    """Answers by law. After a failure the ranks are out of step, and what comes behind it is not tried."""
    from deepinfer_conformance.laws.collective import LAWS

    answers: dict[str, Answer] = {}
    for law in laws:
        if any("error" in answer for answer in answers.values()):
            answers[law] = {"error": "not tried, because an earlier law failed on this rank"}
            continue
        try:
            answers[law] = LAWS[law](rank)
        except Exception:
            answers[law] = {"error": traceback.format_exc()}
    return answers


if __name__ == "__main__":
    main(sys.argv[1:])
