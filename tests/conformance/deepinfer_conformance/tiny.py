"""Where the tiny checkpoint and its golden outputs are: in an installed wheel, or in the source tree's tests/data."""

from __future__ import annotations

from pathlib import Path

_PACKAGED = Path(__file__).parent / "data"
_IN_TREE = Path(__file__).parents[2] / "data"


def data_folder() -> Path:
    """The folder of `tiny_v41/`, `golden_logits.npz` and `golden_more.npz`."""
    for folder in (_PACKAGED, _IN_TREE):
        if (folder / "tiny_v41" / "config.json").is_file():
            return folder
    raise FileNotFoundError(f"the tiny checkpoint is in neither {_PACKAGED} nor {_IN_TREE}: install the suite again")
