"""Trains the backbone. A run stops at its time limit and the next one takes up where it stopped.

python -m training.backbone --data FOLDER --work FOLDER [--seconds 560] [--tiny]
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from dense_v41 import DenseModel
from torch import Tensor

from training.dense import device, new_model, spec_for
from training.fast import compiled, make_fast
from training.optimiser import Optimiser, rate_at
from training.prepare import prepared
from training.shape import FULL, TINY_RUN, Recipe
from training.tokens import Windows

logger = logging.getLogger(__name__)

STATE = "backbone.pt"
REPORT_EVERY = 50


class Backbone:
    """The model, its optimiser, and the number of steps done."""

    def __init__(self, recipe: Recipe, model: DenseModel) -> None:
        self.recipe, self.model, self.done = recipe, model, 0
        self.optimiser = Optimiser(backbone_parameters(model), recipe.weight_decay)
        self.loss = compiled(next_token_loss) if device().type == "cuda" else next_token_loss

    def plan(self) -> Iterator[tuple[int, int, int]]:
        """(first step, steps, phase number) of each phase."""
        first = 0
        for number, phase in enumerate(self.recipe.phases):
            steps = max(1, round(self.recipe.tokens * phase.share / (phase.length * phase.batch)))
            yield first, steps, number
            first += steps

    @property
    def steps(self) -> int:
        """Of the whole training."""
        first, steps, _ = list(self.plan())[-1]
        return first + steps

    def step(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """One step on ids [B, T + 1]: (loss, the indexers' loss where this step trains them)."""
        recipe = self.recipe
        output = self.model(ids[:, :-1], index_loss=self.done % recipe.index_every == 0)
        loss = self.loss(output.logits, ids[:, 1:])
        (loss if output.index_loss is None else loss + output.index_loss).backward()
        share = rate_at(self.done, self.steps, recipe.warmup_steps, recipe.decay_share)
        self.optimiser.step(share * recipe.matrix_rate, share * recipe.other_rate)
        balance(self.model, recipe.bias_rate * share)
        self.done += 1
        return loss.detach(), None if output.index_loss is None else output.index_loss.detach()

    def save(self, path: Path) -> None:
        """Write all that `load` needs, whole or not at all."""
        state = {"done": self.done, "model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
        torch.save(state, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)

    def load(self, path: Path) -> None:
        """Take up where the run that saved `path` stopped."""
        state = torch.load(path, map_location=device())
        self.done = state["done"]
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])


def backbone_parameters(model: DenseModel) -> list[tuple[str, torch.nn.Parameter]]:
    """All but the draft stages'."""
    return [(name, p) for name, p in model.named_parameters() if not name.startswith("mtp.")]


def next_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy in nats: logits [B, T, V], labels [B, T]."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


@torch.no_grad()
def balance(model: DenseModel, rate: float) -> None:
    """Move each expert's bias by `rate` toward an equal load, judged by the last forward."""
    for layer in model.layers:
        load = layer.ffn.load.float()
        layer.ffn.gate.bias += rate * torch.sign(load.mean() - load)


def train(backbone: Backbone, stream: Tensor, seconds: float, path: Path) -> bool:
    """Step until the end of the plan (True) or of the time (False).

    Saves at the end of each phase: the first step of the next one compiles, which can outlast the time.
    """
    deadline = time.monotonic() + seconds
    last_index = torch.tensor(torch.nan)  # until the indexers are trained in this run
    for first, steps, number in backbone.plan():
        phase = backbone.recipe.phases[number]
        windows = Windows(stream, phase.length, phase.batch, seed=number)
        started, at = time.monotonic(), backbone.done
        while backbone.done < first + steps:
            if time.monotonic() > deadline:
                return False
            loss, index_loss = backbone.step(windows[backbone.done - first])
            if index_loss is not None:
                last_index = index_loss
            if backbone.done % REPORT_EVERY == 0 or backbone.done in (at + 1, at + 5):
                pace = (backbone.done - at) * phase.batch * phase.length / (time.monotonic() - started)
                logger.info(
                    "step %d of %d, loss %.3f, index loss %.3f, load max/mean %.2f, %.0f tokens/s",
                    backbone.done, backbone.steps, float(loss), float(last_index), unevenness(backbone.model), pace,
                )  # fmt: skip
        backbone.save(path)
    return True


def unevenness(model: DenseModel) -> float:
    """The fullest expert's rows over the mean, in the worst layer, in the last forward."""
    return max(float(layer.ffn.load.max() / layer.ffn.load.float().mean()) for layer in model.layers)


def run(recipe: Recipe, data: Path, work: Path, seconds: float) -> bool:
    """Prepare or take up, train, save. True when the training is complete."""
    begun = time.monotonic()
    tokenizer, stream = prepared(data, work, recipe)
    dtype = torch.bfloat16 if device().type == "cuda" else torch.float32
    model = new_model(spec_for(recipe.spec, tokenizer), tokenizer, dtype)
    backbone = Backbone(recipe, model)
    if (work / STATE).exists():
        backbone.load(work / STATE)
    make_fast(model)
    logger.info("%d tokens of text, %d of %d steps done", len(stream), backbone.done, backbone.steps)
    complete = train(backbone, stream.to(device()), seconds - (time.monotonic() - begun), work / STATE)
    backbone.save(work / STATE)
    logger.info("%d of %d steps done in %.0f s", backbone.done, backbone.steps, time.monotonic() - begun)
    return complete


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of .txt.xz files")
    parser.add_argument("--work", type=Path, required=True, help="folder for the tokenizer and the state")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop in time (default: %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="the tiny twin, for trying the scripts")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    run(TINY_RUN if options.tiny else FULL, options.data, options.work, options.seconds)


if __name__ == "__main__":
    main()
