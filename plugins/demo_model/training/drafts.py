"""Trains the draft stages of a checkpoint folder, whose backbone stays as it is: first on the training text, then on
the model's own continuations. Recipe: DSpark, arXiv 2607.05147.

    python -m training.drafts --data FOLDER --work FOLDER --model FOLDER --out FOLDER [--seconds 150] [--tiny]
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from dense_v41 import DenseModel, load_folder
from tokenizers import Tokenizer
from torch import Tensor

from training.continuations import own_text
from training.corpus import read_documents, training_files
from training.dense import IN_THE_LOOP, device, spec_for
from training.export import export
from training.optimiser import Optimiser, rate_at
from training.prepare import prepared
from training.shape import FULL, TINY_RUN, Recipe
from training.tokens import Windows

logger = logging.getLogger(__name__)

# Weights of the loss's parts, and how fast later drafts count less.
CROSS_ENTROPY, DISTANCE, CONFIDENCE, DECAY = 0.1, 0.9, 1.0, 4.0
REUSE = 4  # draft steps on one forward of the backbone
OWN_SHARE = 0.6  # last part of the steps, on the model's own text
REPORT_EVERY = 100


@dataclass(frozen=True, slots=True)
class Target:
    """What the backbone says of a batch of windows [B, T]."""

    ids: Tensor
    taps: Tensor
    logits: Tensor


@torch.no_grad()
def ask_backbone(model: DenseModel, ids: Tensor) -> Target:
    """Run the frozen backbone on ids [B, T]."""
    output = model(ids)
    assert output.taps is not None
    return Target(ids, output.taps, output.logits)


def draft_loss(model: DenseModel, target: Target, anchors: Tensor) -> tuple[Tensor, Tensor]:
    """(loss, mean acceptance of each draft [S] under the true prefix) after anchor positions [A].

    A draft's target is the backbone's distribution at the same place, its input the true tokens before it.
    """
    size = model.config.dspark_block_size
    places = anchors[:, None] + 1 + torch.arange(size, device=anchors.device)
    draft = model.draft(target.taps, 0, anchors, target.ids[:, places])
    wanted = target.logits[:, places].softmax(-1)
    overlap = 1 - 0.5 * (draft.logits.softmax(-1) - wanted).abs().sum(-1)
    truth = F.cross_entropy(draft.logits.flatten(0, 2), target.ids[:, places + 1].flatten(), reduction="none")
    confidence = F.binary_cross_entropy_with_logits(draft.confidence, overlap.detach(), reduction="none")
    parts = CROSS_ENTROPY * truth.view_as(overlap) + DISTANCE * 2 * (1 - overlap) + CONFIDENCE * confidence
    weights = torch.exp(-torch.arange(size, device=anchors.device) / DECAY)
    return (parts * weights).sum() / (weights.sum() * overlap[..., 0].numel()), overlap.detach().mean((0, 1))


def draw_anchors(length: int, count: int, size: int, generator: torch.Generator) -> Tensor:
    """`count` positions of a window of `length` that have all their drafts' targets after them."""
    return torch.randperm(length - size - 1, generator=generator)[:count].sort().values


class DraftTraining:
    """The stages' optimiser and the batches that the backbone has been asked about."""

    def __init__(self, recipe: Recipe, model: DenseModel, batches: Callable[[int], Tensor]) -> None:
        self.recipe, self.model, self.batches = recipe, model, batches
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("mtp."))
        self.optimiser = Optimiser([(n, p) for n, p in model.named_parameters() if p.requires_grad], decay=0.0)
        self.generator = torch.Generator().manual_seed(0)

    def steps(self, seconds: float) -> Iterator[tuple[int, Tensor, Tensor]]:
        """(step, loss, acceptances), the rates following the share of the steps or of the time that is gone."""
        recipe, begun = self.recipe, time.monotonic()
        target = ask_backbone(self.model, self.batches(0))
        for step in range(recipe.draft_steps):
            gone = max(step / recipe.draft_steps, (time.monotonic() - begun) / seconds)
            if gone >= 1:
                return
            if step % REUSE == 0:
                target = ask_backbone(self.model, self.batches(int(gone * recipe.draft_steps)))
            anchors = draw_anchors(
                target.ids.shape[1], recipe.draft_anchors, self.model.config.dspark_block_size, self.generator
            )
            loss, acceptance = draft_loss(self.model, target, anchors.to(target.ids.device))
            loss.backward()
            share = rate_at(int(gone * 10000), 10000, 0, 0.5) * min(1.0, (step + 1) / 100)
            self.optimiser.step(share * recipe.draft_rate, share * recipe.draft_rate)
            self._balance(share)
            yield step, loss.detach(), acceptance

    @torch.no_grad()
    def _balance(self, share: float) -> None:
        for stage in self.model.mtp:
            load = stage.ffn.load.float()
            stage.ffn.gate.bias += self.recipe.bias_rate * share * torch.sign(load.mean() - load)


def batches_of(recipe: Recipe, stream: Tensor, own: Tensor) -> Callable[[int], Tensor]:
    """The ids for a step: windows of the training text, then rows of the model's own text."""
    windows = Windows(stream, recipe.draft_length, recipe.draft_batch, seed=7)
    first_own = int((1 - OWN_SHARE) * recipe.draft_steps)
    generator = torch.Generator().manual_seed(7)

    def batch(step: int) -> Tensor:
        if step < first_own:
            return windows[step % windows.steps_per_epoch][:, :-1]
        rows = max(1, recipe.draft_batch * recipe.draft_length // own.shape[1])
        return own[torch.randint(0, len(own), (rows,), generator=generator).to(own.device)]

    return batch


def run(recipe: Recipe, data: Path, work: Path, folder: Path, out: Path, seconds: float) -> None:
    """Train the stages of `folder` for at most `seconds` and write the whole model to `out`."""
    begun = time.monotonic()
    torch.set_float32_matmul_precision("high")
    tokenizer, stream = prepared(data, work, recipe.spec.vocab_size)
    dtype = torch.bfloat16 if device().type == "cuda" else torch.float32
    model = load_folder(folder, IN_THE_LOOP, dtype).to(device())
    documents = [document for path in training_files(data) for document in read_documents(path)]
    own = own_text(model, tokenizer, documents, recipe.own_rows, recipe.own_length, seed=1)
    logger.info("%d tokens of the model's own text in %.0f s", own.numel(), time.monotonic() - begun)
    training = DraftTraining(recipe, model, batches_of(recipe, stream.to(device()), own))
    for step, loss, acceptance in training.steps(seconds - (time.monotonic() - begun)):
        if step % REPORT_EVERY == 0:
            shares = " ".join(f"{float(share):.3f}" for share in acceptance)
            logger.info(
                "step %d, %.0f s, loss %.3f, acceptance %s", step, time.monotonic() - begun, float(loss), shares
            )
    write(model, tokenizer, recipe, out)


def write(model: DenseModel, tokenizer: Tokenizer, recipe: Recipe, out: Path) -> None:
    """The trained model as a checkpoint folder."""
    export(out, spec_for(recipe.spec, tokenizer), tokenizer, model.state_dict())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of .txt.xz files")
    parser.add_argument("--work", type=Path, required=True, help="folder of training.backbone")
    parser.add_argument("--model", type=Path, required=True, help="checkpoint folder with a trained backbone")
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop in time (default: %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="the tiny twin")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    recipe = TINY_RUN if options.tiny else FULL
    run(recipe, options.data, options.work, options.model, options.out, options.seconds)


if __name__ == "__main__":
    main()
