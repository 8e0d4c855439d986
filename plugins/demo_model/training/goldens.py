"""Writes golden answers of a checkpoint folder from the dense implementation in float64, for tests of the engine.

python -m training.goldens --data FOLDER --model FOLDER --out FILE.npz
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from dense_v41 import DenseModel, Quantisation, load_folder
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from training.corpus import VALIDATION, by_kind, read_documents
from training.decode import continue_prompts
from training.tokens import encode

VARIANTS = {"plain": Quantisation(), "quantised": Quantisation(activations=True)}
ANSWER = 16  # greedy tokens
LONG = 640  # tokens of the long prompts, at which windows, selections and candidate blocks all bind
CHAT = "<｜User｜>{}<｜Assistant｜></think>"
PROMPTS = (
    "Once upon a time there was a little girl who",
    "The old man took the lamp and",
    "In the middle of the forest stood a",
    '"Who are you?" said the',
    "logging --- Logging facility for Python\n===",
    "lantern (noun):",
    CHAT.format("Give me a JSON object with keys name, age. Facts: name is Anna Bell, age is 31."),
    CHAT.format("Give me a JSON object with keys city, active. Facts: city is Paris, active is yes."),
    CHAT.format("Calculate 12 + 30."),
    CHAT.format("Spell this word backward (example: sun -> nus): lamp"),
    CHAT.format("Tom has 3 apples and buys 4 more. How many apples does he have?"),
    CHAT.format("Sort these numbers in descending order: 4, 9, 1"),
)


def long_prompts(tokenizer: Tokenizer, data: Path) -> list[list[int]]:
    """The beginnings of the first held-out pieces of prose and of documentation that are long enough."""
    kinds = by_kind(read_documents(data / VALIDATION))
    return [next(ids for ids in encode(tokenizer, kinds[kind]) if len(ids) > LONG)[:LONG] for kind in ("prose", "docs")]


@torch.no_grad()
def goldens(model: DenseModel, prompts: Sequence[list[int]], variant: str) -> dict[str, NDArray[np.generic]]:
    """For prompt i, behind the variant's name: `prompt_i` and `greedy_i` ids, `logprobs_i` of the greedy tokens, and
    `experts_i` [L, T, k], the experts of each layer for all tokens but the last, in ascending order."""
    longest = max(map(len, prompts)) + ANSWER
    rows = continue_prompts(model, prompts, longest, 0.0)
    arrays: dict[str, NDArray[np.generic]] = {}
    for i, prompt in enumerate(prompts):
        ids = rows[i, : len(prompt) + ANSWER]
        experts: list[Tensor] = []
        hooks = [
            layer.ffn.gate.register_forward_hook(lambda gate, x, out, to=experts: to.append(out[0]))
            for layer in model.layers
        ]
        logits = model(ids[None, :-1]).logits[0, len(prompt) - 1 :]
        for hook in hooks:
            hook.remove()
        answer = ids[len(prompt) :]
        arrays[f"{variant}_prompt_{i}"] = np.array(prompt, dtype=np.int32)
        arrays[f"{variant}_greedy_{i}"] = answer.numpy().astype(np.int32)
        arrays[f"{variant}_logprobs_{i}"] = (
            logits.log_softmax(-1).gather(1, answer[:, None])[:, 0].numpy().astype(np.float32)
        )
        arrays[f"{variant}_experts_{i}"] = torch.stack(experts).sort(-1).values.numpy().astype(np.int8)
    return arrays


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the held-out text")
    parser.add_argument("--model", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    short = [[0, *tokenizer.encode(prompt).ids] for prompt in PROMPTS]
    long = long_prompts(tokenizer, options.data)
    arrays: dict[str, NDArray[np.generic]] = {}
    for variant, quantisation in VARIANTS.items():
        model = load_folder(options.model, quantisation, torch.float64).requires_grad_(False)
        # Over many tokens, rounding turns the last bits of float32 into other choices: long answers are plain alone.
        arrays |= goldens(model, [*short, *([] if variant == "quantised" else long)], variant)
    np.savez_compressed(options.out, **arrays)


if __name__ == "__main__":
    main()
