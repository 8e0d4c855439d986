"""The engine's model against the dense implementation on checkpoints of many shapes: any map, any chunking.

The dense implementation runs in float64. With quantisation a number can lie so near a rounding boundary that float32
falls on the other side, and from that row on the prompt's logits are others. So several prompts are run: without
quantisation all must agree, with it some may fall to such an accident, a broken model fails them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest
import torch
from dense_v41 import DenseModel, Quantisation, load_folder
from layer_maps import SPECS, write_spec
from model_driver import Chunk, Driver, load_model
from torch import Tensor

from deepinfer_core.interfaces.model import Model

PROMPTS, LENGTH, KEPT = 8, 40, 15
TOLERANCE = 1e-4
MUST_AGREE = {False: PROMPTS, True: 3}

shapes = pytest.mark.parametrize("name", SPECS)
both = pytest.mark.parametrize("quantise", [False, True], ids=["plain", "quantised"])


@dataclass(frozen=True)
class Case:
    """One checkpoint, loaded both ways, and the prompts int64 [PROMPTS, LENGTH]."""

    folder: Path
    vocab_size: int
    quantise: bool

    @cached_property
    def ids(self) -> Tensor:
        generator = torch.Generator().manual_seed(11)
        return torch.randint(0, self.vocab_size, (PROMPTS, LENGTH), generator=generator)

    @cached_property
    def engine(self) -> Model:
        return load_model(self.folder, self.quantise)

    @cached_property
    def dense(self) -> DenseModel:
        quantisation = Quantisation(activations=self.quantise)
        return load_folder(self.folder, quantisation, torch.float64).requires_grad_(False)

    def driver(self) -> Driver:
        return Driver(self.engine, slots=PROMPTS, max_length=64, step_tokens=PROMPTS * LENGTH)

    def check(self, actual: Tensor, decoder_start: int = 0) -> None:
        """actual [PROMPTS, LENGTH - decoder_start, V] are the engine's logits."""
        expected = self.dense(self.ids, decoder_start).logits
        assert actual.shape == expected.shape
        worst = (actual - expected).abs().amax((1, 2))
        assert (worst < TOLERANCE).sum() >= MUST_AGREE[self.quantise], worst


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory):
    """(name, quantise) -> Case; each checkpoint is written once."""

    @cache
    def folder(name: str) -> Path:
        path = tmp_path_factory.mktemp("checkpoint")
        write_spec(name, path)
        return path

    @cache
    def make(name: str, quantise: bool) -> Case:
        return Case(folder(name), SPECS[name].vocab_size, quantise)

    return make


def run(case: Case, sizes: list[int], decoder_start: int = 0) -> Tensor:
    """Prefill all prompts together, prompt i in chunks of sizes[i]; the logits of their kept rows."""
    driver, ids = case.driver(), case.ids.tolist()
    rows: list[list[Tensor]] = [[] for _ in ids]
    while any(length < LENGTH for length in driver.lengths):
        chunks = [
            Chunk(slot, ids[slot][at : at + sizes[slot]], decoder_start)
            for slot, at in enumerate(driver.lengths)
            if at < LENGTH
        ]
        for chunk, logits in zip(chunks, driver.step(chunks), strict=True):
            rows[chunk.slot].append(logits)
    return torch.stack([torch.cat(parts) for parts in rows])


@both
@shapes
def test_one_shot(case, name, quantise):
    shape = case(name, quantise)
    shape.check(run(shape, [LENGTH] * PROMPTS))


@both
@shapes
def test_chunks_of_other_sizes_share_their_steps(case, name, quantise):
    shape = case(name, quantise)
    shape.check(run(shape, [5, 6, 7, 8, 11, 13, 17, 39]))


@both
@shapes
def test_bounded_rows(case, name, quantise):
    shape, start = case(name, quantise), LENGTH - KEPT
    shape.check(run(shape, [LENGTH, 7, 8, 9, 13, 16, 24, 31], start), start)


def test_token_by_token(case):
    shape = case("ratio 4, then 8, then 1", True)
    shape.check(run(shape, [1] * PROMPTS))
