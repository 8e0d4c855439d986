"""Fits the confidence head alone to fresh text of the engine's, after the draft stages are trained.

python -m training.confidence --data FOLDER --model FOLDER --out FOLDER [--texts 64]
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from dense_v41 import DenseModel, Quantisation, load_folder
from tokenizers import Tokenizer
from torch import Tensor

from deepinfer_core import LLM
from training.acceptance import Text, anchor_groups, grouped
from training.continuations import openings
from training.corpus import read_documents, training_files
from training.dense import device, spec_for
from training.export import export
from training.shape import FULL
from training.speaking import said

LONGEST = 128  # tokens of a text
RIDGE = 1e-3  # pull toward the weights that the head had
STEPS = 50


@torch.no_grad()
def examples(model: DenseModel, texts: Sequence[Text]) -> tuple[Tensor, Tensor]:
    """(the head's inputs [R, D + rank], the acceptance that it should predict [R]) over all rounds of the texts."""
    inputs, wanted, seen = [], [], []
    head = model.mtp[-1].confidence_head
    hook = head.register_forward_pre_hook(lambda _, given: seen.append(torch.cat((given[0].float(), given[1]), -1)))
    for group in grouped(texts):
        for ids, anchors, taps, logits, usable in anchor_groups(model, group):
            seen.clear()
            places = anchors[:, None] + 1 + torch.arange(model.config.dspark_block_size, device=ids.device)
            draft = model.draft(taps, 0, anchors, ids[:, places])
            overlap = 1 - 0.5 * (draft.logits.softmax(-1) - logits[:, places].softmax(-1)).abs().sum(-1)
            inputs.append(torch.stack(seen, 2)[usable].flatten(0, 1))
            wanted.append(overlap[usable].flatten())
    hook.remove()
    return torch.cat(inputs), torch.cat(wanted)


def fit(weight: Tensor, inputs: Tensor, wanted: Tensor) -> Tensor:
    """The head's weight [1, D + rank] with the least cross entropy, held near the given one."""
    fitted = weight.detach().clone().requires_grad_()
    optimiser = torch.optim.LBFGS([fitted], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        entropy = F.binary_cross_entropy_with_logits((inputs @ fitted.T).squeeze(-1), wanted)
        total = entropy + RIDGE * (fitted - weight).square().sum()
        total.backward()
        return total

    optimiser.step(loss)
    return fitted.detach()


def run(data: Path, folder: Path, out: Path, count: int) -> None:
    """Let the engine speak `count` texts after training documents, fit, and write the whole model to `out`."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    documents = [document for path in training_files(data) for document in read_documents(path)]
    prompts = openings(tokenizer, random.Random(11).sample(documents, 2 * count))
    prompts = [prompt for prompt in prompts if len(prompt) < LONGEST // 2][:count]
    with LLM(str(folder)) as llm:
        texts = list(zip(prompts, said(llm, prompts, LONGEST // 2, temperature=1.0, seed=11), strict=True))
    model = load_folder(folder, Quantisation(activations=True)).requires_grad_(False).to(device())
    weight = model.mtp[-1].confidence_head.proj.weight
    weight.copy_(fit(weight, *examples(model, texts)))
    export(out, spec_for(FULL.spec, tokenizer), tokenizer, model.state_dict())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of .txt.xz files")
    parser.add_argument("--model", type=Path, required=True, help="checkpoint folder with trained draft stages")
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--texts", type=int, default=64, help="texts to fit to (default: %(default)s)")
    options = parser.parse_args()
    run(options.data, options.model, options.out, options.texts)


if __name__ == "__main__":
    main()
