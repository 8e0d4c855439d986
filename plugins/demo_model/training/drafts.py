"""Trains the draft stages of a checkpoint folder, whose backbone stays as it is, on the training text and on the
model's own continuations by turns. Recipe: DSpark, arXiv 2607.05147.

    python -m training.drafts --data FOLDER --work FOLDER --model FOLDER --out FOLDER [--seconds 560] [--until 1]

A run stops at `--seconds` and the next one takes it up. With `--until` a run does the training up to that share of it
in these seconds, with fewer steps if need be: two runs that must be all have `--until 0.7`, then `--until 1`.
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
from dense_v41 import DenseModel, Quantisation, load_folder
from tokenizers import Tokenizer
from torch import Tensor

from training.continuations import own_text
from training.corpus import training_documents
from training.dense import IN_THE_LOOP, device, spec_for
from training.export import export
from training.fast import compiled, make_drafts_fast
from training.optimiser import Optimiser, rate_at
from training.prepare import prepared
from training.shape import FULL, TINY_RUN, Recipe
from training.tokens import Windows

logger = logging.getLogger(__name__)

STATE, OWN = "drafts.pt", "own.pt"  # in the work folder
STORED = Quantisation(activations=True)  # the backbone's weights are read as they were rounded

# Weights of the loss's parts, and how fast later drafts count less.
CROSS_ENTROPY, DISTANCE, CONFIDENCE, DECAY = 0.1, 0.9, 1.0, 4.0
REUSE = 8  # draft steps on one forward of the backbone
WARMUP = 100  # steps
REPORT_EVERY = 200


@dataclass(frozen=True, slots=True)
class Target:
    """What the backbone says of a batch of windows [B, T]."""

    ids: Tensor
    taps: Tensor
    logits: Tensor


@torch.no_grad()
def ask_backbone(model: DenseModel, ids: Tensor) -> Target:
    """Run the frozen backbone on ids [B, T], without compiling anything for its one shape."""
    with torch.compiler.set_stance("force_eager"):
        output = model(ids)
    assert output.taps is not None
    return Target(ids, output.taps, output.logits)


def draft_loss(
    model: DenseModel, target: Target, anchors: Tensor, losses: Callable[..., tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """`losses` of the drafts after anchor positions [A].

    A draft's target is the backbone's distribution at the same place, its input the true tokens before it.
    """
    places = anchors[:, None] + 1 + torch.arange(model.config.dspark_block_size, device=anchors.device)
    draft = model.draft(target.taps, 0, anchors, target.ids[:, places])
    return losses(draft.logits, draft.confidence, target.logits[:, places], target.ids[:, places + 1])


def losses(logits: Tensor, confidence: Tensor, wanted: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """(loss, mean acceptance of each draft [S] under the true prefix) of B sequences, A anchors, S drafts each.

    The drafts' and the backbone's logits [B, A, S, V], the confidences and the tokens that follow [B, A, S].
    """
    overlap = 1 - 0.5 * (logits.softmax(-1) - wanted.softmax(-1)).abs().sum(-1)
    entropy = F.cross_entropy(logits.flatten(0, 2), truth.flatten(), reduction="none").view_as(overlap)
    judged = F.binary_cross_entropy_with_logits(confidence, overlap.detach(), reduction="none")
    parts = CROSS_ENTROPY * entropy + DISTANCE * 2 * (1 - overlap) + CONFIDENCE * judged
    weights = torch.exp(-torch.arange(overlap.shape[2], device=overlap.device) / DECAY)
    return (parts * weights).sum() / (weights.sum() * overlap[..., 0].numel()), overlap.detach().mean((0, 1))


def draw_anchors(length: int, count: int, size: int, seed: int) -> Tensor:
    """`count` positions of a window of `length` that have all their drafts' targets after them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(length - size - 1, generator=generator)[:count].sort().values


class Batches:
    """Ids [B, T] by number: windows of the training text and rows of the model's own text by turns."""

    def __init__(self, recipe: Recipe, stream: Tensor, own: Tensor) -> None:
        """`stream` int16 [N] and `own` int64 [R, T] live on the device where the batches are wanted."""
        self.windows = Windows(stream, recipe.draft_length, recipe.draft_batch, seed=7)
        self.own, self.rows = own, recipe.draft_batch

    def __getitem__(self, number: int) -> Tensor:
        turn, is_own = divmod(number, 2)
        if not is_own:
            return self.windows[turn][:, :-1]
        generator = torch.Generator().manual_seed(number)
        return self.own[torch.randint(0, len(self.own), (self.rows,), generator=generator).to(self.own.device)]


class DraftTraining:
    """The stages, their optimiser, and how much of the training is done."""

    def __init__(self, recipe: Recipe, model: DenseModel) -> None:
        self.recipe, self.model = recipe, model
        self.step, self.share = 0, 0.0  # steps done, and the part of the whole training that they are
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("mtp."))
        self.optimiser = Optimiser([(n, p) for n, p in model.named_parameters() if p.requires_grad], decay=0.0)
        self.losses = compiled(losses) if device().type == "cuda" else losses

    def run(self, batches: Batches, seconds: float, until: float | None) -> Iterator[tuple[Tensor, Tensor]]:
        """(loss, acceptances) of each step. Without `until` the steps decide the share that is done, and `seconds` end
        the run; with it the share follows the time, or the steps where they are faster."""
        if seconds <= 0:
            raise ValueError("the time was used up before the first step: give more --seconds")
        first, begun = self.share, time.monotonic()
        goal, target = 1.0 if until is None else until, None
        while self.share < goal and (until is not None or time.monotonic() - begun < seconds):
            if target is None or self.step % REUSE == 0:
                target = ask_backbone(self.model, batches[self.step // REUSE])
            yield self._step(target)
            self.step += 1
            by_time = first if until is None else first + (until - first) * (time.monotonic() - begun) / seconds
            self.share = min(goal, max(self.step / self.recipe.draft_steps, by_time))

    def _step(self, target: Target) -> tuple[Tensor, Tensor]:
        anchors = draw_anchors(
            target.ids.shape[1], self.recipe.draft_anchors, self.model.config.dspark_block_size, self.step
        )
        loss, acceptance = draft_loss(self.model, target, anchors.to(target.ids.device), self.losses)
        loss.backward()
        part = rate_at(int(self.share * 10000), 10000, 0, 0.5) * min(1.0, (self.step + 1) / WARMUP)
        self.optimiser.step(part * self.recipe.draft_rate, part * self.recipe.draft_rate)
        with torch.no_grad():
            for stage in self.model.mtp:
                load = stage.ffn.load.float()
                stage.ffn.gate.bias += self.recipe.bias_rate * part * torch.sign(load.mean() - load)
        return loss.detach(), acceptance

    def save(self, path: Path) -> None:
        """Write all that `load` needs, whole or not at all."""
        state = {"step": self.step, "share": self.share, "optimiser": self.optimiser.state_dict()}
        torch.save(state | {"stages": self.model.mtp.state_dict()}, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)

    def load(self, path: Path) -> None:
        """Take up where the run that saved `path` stopped."""
        state = torch.load(path, map_location=device())
        self.step, self.share = state["step"], state["share"]
        self.optimiser.load_state_dict(state["optimiser"])
        self.model.mtp.load_state_dict(state["stages"])


def own_rows(recipe: Recipe, model: DenseModel, tokenizer: Tokenizer, data: Path, work: Path) -> Tensor:
    """The model's own text int64 [R, T], made once in the work folder."""
    if not (work / OWN).exists():
        documents = training_documents(data, recipe.documents)
        torch.save(own_text(model, tokenizer, documents, recipe.own_rows, recipe.draft_length, seed=1), work / OWN)
    return torch.load(work / OWN, map_location=device())


def run(
    recipe: Recipe, data: Path, work: Path, folder: Path, out: Path, seconds: float, until: float | None = None
) -> None:
    """Train the stages of `folder`, as `DraftTraining.run` says, and write the model to `out`."""
    begun = time.monotonic()
    torch.set_float32_matmul_precision("high")
    tokenizer, stream = prepared(data, work, recipe)
    dtype = torch.bfloat16 if device().type == "cuda" else torch.float32
    model = load_folder(folder, IN_THE_LOOP, dtype).to(device())
    for module in model.layers.modules():
        if hasattr(module, "quantisation"):
            module.quantisation = STORED
    own = own_rows(recipe, model, tokenizer, data, work)
    logger.info("%d tokens of the model's own text after %.0f s", own.numel(), time.monotonic() - begun)
    make_drafts_fast(model)
    training = DraftTraining(recipe, model)
    if (work / STATE).exists():
        training.load(work / STATE)
    batches = Batches(recipe, stream.to(device()), own)
    for loss, acceptance in training.run(batches, seconds - (time.monotonic() - begun), until):
        if training.step % REPORT_EVERY < 2:
            shares = " ".join(f"{float(share):.3f}" for share in acceptance)
            logger.info(
                "step %d, %.0f s, %.3f of the training, loss %.3f, acceptance %s",
                training.step, time.monotonic() - begun, training.share, float(loss), shares,
            )  # fmt: skip
    training.save(work / STATE)
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
    parser.add_argument("--until", type=float, help="share of the training to reach in these seconds")
    parser.add_argument("--tiny", action="store_true", help="the tiny twin")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    recipe = TINY_RUN if options.tiny else FULL
    run(recipe, options.data, options.work, options.model, options.out, options.seconds, options.until)


if __name__ == "__main__":
    main()
