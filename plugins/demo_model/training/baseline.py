"""What simple compressors reach on the held-out text: gzip, and a byte n-gram model of the training text.

python -m training.baseline --data FOLDER [--megabytes 16]
"""

from __future__ import annotations

import argparse
import gzip
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.corpus import SEPARATOR, VALIDATION, by_kind, read_documents, training_documents

ORDER = 5  # bytes of context
Codes = NDArray[np.uint64]


def gzip_bits(documents: Sequence[str]) -> float:
    """Bits per byte of all documents in one gzip stream."""
    text = SEPARATOR.join(documents).encode()
    return 8 * len(gzip.compress(text, 9)) / len(text)


def codes(text: bytes, order: int) -> Codes:
    """Each byte behind its `order` predecessors, as one number; the first bytes have zeros before them."""
    padded = np.frombuffer(bytes(order) + text, dtype=np.uint8).astype(np.uint64)
    total = np.zeros(len(text), dtype=np.uint64)
    for back in range(order, -1, -1):
        total = total << np.uint64(8) | padded[order - back : len(padded) - back]
    return total


class NGrams:
    """Byte counts behind contexts of 0 to ORDER bytes, mixed by Witten and Bell's rule."""

    def __init__(self, text: bytes) -> None:
        self.orders = []
        for order in range(ORDER + 1):
            seen, counts = np.unique(codes(text, order), return_counts=True)
            contexts, first = np.unique(seen >> np.uint64(8), return_index=True)
            self.orders.append(
                (seen, counts, contexts, np.add.reduceat(counts, first), np.diff(first, append=len(seen)))
            )

    def bits(self, text: bytes) -> float:
        """Bits per byte of `text`."""
        probability = np.full(len(text), 1 / 256)
        for order, (seen, counts, contexts, totals, kinds) in enumerate(self.orders):
            wanted = codes(text, order)
            count = _looked_up(seen, counts, wanted)
            total, kind = (_looked_up(contexts, values, wanted >> np.uint64(8)) for values in (totals, kinds))
            known = total > 0
            mixed = (count + kind * probability) / np.maximum(total + kind, 1)
            probability = np.where(known, mixed, probability)
        return float(-np.log2(probability).mean())


def _looked_up(keys: Codes, values: NDArray[np.int64], wanted: Codes) -> NDArray[np.int64]:
    """The values of the wanted keys, 0 for a key that is not there."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)


def sample(folder: Path, size: int) -> bytes:
    """About `size` bytes of whole training documents, drawn at random."""
    documents = training_documents(folder)
    random.Random(0).shuffle(documents)
    taken, parts = 0, []
    for document in documents:
        if taken >= size:
            break
        parts.append(document.encode())
        taken += len(parts[-1])
    return SEPARATOR.encode().join(parts)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of .txt.xz files")
    parser.add_argument("--megabytes", type=float, default=16, help="of training text counted (default: %(default)s)")
    options = parser.parse_args()
    grams = NGrams(sample(options.data, int(options.megabytes * 1e6)))
    held_out = read_documents(options.data / VALIDATION)
    for kind, documents in (by_kind(held_out) | {"all": held_out}).items():
        text = SEPARATOR.join(documents).encode()
        print(f"{kind:8} gzip {gzip_bits(documents):.3f}  {ORDER + 1}-gram {grams.bits(text):.3f}  bytes {len(text)}")


if __name__ == "__main__":
    main()
