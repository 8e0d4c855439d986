"""Measures a checkpoint folder, with the dense implementation and the engine, and prints the model card's numbers.

python -m training.evaluate --data FOLDER --model FOLDER [--out numbers.json] [--documents N] [--parts bits,drafts]
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from dense_v41 import DenseModel, Quantisation, load_folder
from tokenizers import Tokenizer

from deepinfer_core import LLM
from training.acceptance import LENGTH, acceptance
from training.answers import exact_share, json_score
from training.bits import bits_per_byte, bounded_agreement, expert_load, packed
from training.continuations import openings
from training.corpus import VALIDATION, by_kind, read_documents
from training.dense import device
from training.speaking import greedy_answers, prefill_agreement, said

logger = logging.getLogger(__name__)

# What is rounded besides the weights.
VARIANTS = {
    "as stored": Quantisation(activations=True),
    "caches unrounded": Quantisation(activations=True, caches=False),
    "nothing rounded": Quantisation(),
}
DRAFTED = {"prose": ("prose", 12), "maths": ("maths", 12), "JSON": ("json", 24), "chat": ("reason", 48)}  # documents
PARTS = ("bits", "load", "bounded", "prefill", "answers", "drafts")  # methods of Measured
LONG_DOCUMENTS = 12  # prompts of the comparison of prefills
REPLAY = 140  # positions that the decoder half runs in bounded prefill


class Measured:
    """One checkpoint and the held-out text. Each method gives one part of the numbers."""

    def __init__(self, folder: Path, data: Path, limit: int) -> None:
        self.folder = folder
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        kinds = by_kind(read_documents(data / VALIDATION))
        self.kinds = {kind: documents[:limit] for kind, documents in kinds.items() if documents}
        self.everything = [document for documents in self.kinds.values() for document in documents]
        self.model = self.loaded(VARIANTS["as stored"])

    def loaded(self, quantisation: Quantisation) -> DenseModel:
        """The folder's model in float32, frozen."""
        return load_folder(self.folder, quantisation).requires_grad_(False).to(device())

    def bits(self) -> dict[str, Any]:
        """Bits per byte: of each kind as stored, of everything with less rounded."""
        by = {kind: bits_per_byte(self.model, self.tokenizer, documents) for kind, documents in self.kinds.items()}
        for name, quantisation in VARIANTS.items():
            by[f"all, {name}"] = bits_per_byte(self.loaded(quantisation), self.tokenizer, self.everything)
        return by

    def load(self) -> dict[str, list[float]]:
        """Of each layer, on everything and on definitions."""
        mixed = random.Random(0).sample(self.everything, len(self.everything))
        texts = {"all": mixed, "definitions": self.kinds["glosses"]}
        return {name: expert_load(self.model, self._windows(documents, 256)) for name, documents in texts.items()}

    def bounded(self) -> dict[str, float]:
        """Bounded against exact prefill."""
        documents = self.everything[::-1]  # definitions, then documentation, which is more than is looked at
        return bounded_agreement(self.model, self._windows(documents, 1024), REPLAY)

    def prefill(self) -> float:
        """Share of greedy tokens after long prompts that bounded and exact prefill agree on, by the engine."""
        prose = self.kinds["prose"][:LONG_DOCUMENTS]
        return prefill_agreement(self.folder, self.tokenizer, prose, prompt=600, count=32)

    def answers(self) -> dict[str, Any]:
        """Held-out questions, answered greedily by the engine."""
        result: dict[str, Any] = {}
        with LLM(str(self.folder)) as llm:
            for kind in ("json", "reason", "maths"):
                pairs = greedy_answers(llm, self.tokenizer, self.kinds[kind], longest=300)
                result[kind] = json_score(pairs) if kind == "json" else exact_share(pairs)
        return result

    def drafts(self) -> dict[str, Any]:
        """Acceptance by kind, on text that the engine says."""
        result = {}
        with LLM(str(self.folder)) as llm:
            for name, (kind, count) in DRAFTED.items():
                prompts = openings(self.tokenizer, self.kinds[kind][:count])
                short = [prompt for prompt in prompts if len(prompt) < LENGTH // 2]
                texts = [
                    list(zip(short, said(llm, short, LENGTH // 2, heat, seed=3), strict=True)) for heat in (0.0, 1.0)
                ]
                result[name] = acceptance(self.model, *texts)
                logger.info("%s: %s", name, result[name])
        return result

    def _windows(self, documents: Sequence[str], length: int) -> torch.Tensor:
        rows = min(64, sum(map(len, documents)) // 8 // length)
        return packed(self.tokenizer, documents, length, rows).to(device())


def numbers(folder: Path, data: Path, limit: int, parts: Sequence[str] = PARTS) -> dict[str, Any]:
    """The numbers of each part, by its name."""
    measured, result = Measured(folder, data, limit), {}
    for part in parts:
        begun = time.monotonic()
        result[part] = getattr(measured, part)()
        logger.info("%s: %.0f s", part, time.monotonic() - begun)
    return result


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the held-out text")
    parser.add_argument("--model", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--out", type=Path, help="file for the numbers, as JSON")
    parser.add_argument("--documents", type=int, default=1000, help="of each kind, at most (default: %(default)s)")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure (default: %(default)s)")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    text = json.dumps(numbers(options.model, options.data, options.documents, options.parts.split(",")), indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
