"""The engine on the bundled trained model against goldens of the dense implementation in float64: greedy tokens, their
logprobs, and the experts that each token went to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from model_driver import Chunk, Driver, load_model

import deepinfer_demo_model
from deepinfer_core.interfaces.ops import Weight
from deepinfer_core.ops.table import OpTable, resolve
from deepinfer_cpu.kernels import kernels

FOLDER = Path(deepinfer_demo_model.__file__).parent / "trained"
GOLDEN = np.load(Path(__file__).parents[1] / "data" / "demo_goldens.npz")
ANSWERS = sorted(name.replace("_prompt_", " ") for name in GOLDEN if "_prompt_" in name)
LONGEST = max(len(GOLDEN[name]) for name in GOLDEN if "_prompt_" in name)


@dataclass
class RecordedRoutes:
    """The CPU backend's ops, and the experts that each row of each call of `route` was given."""

    ops: OpTable = field(default_factory=lambda: resolve(kernels()))
    calls: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        route = self.ops.route

        def recording(
            x: torch.Tensor, gate: Weight, bias: torch.Tensor, top_k: int, scale: float
        ) -> tuple[torch.Tensor, torch.Tensor]:
            chosen, weights = route(x, gate, bias, top_k, scale)
            self.calls.append(chosen.sort(-1).values)
            return chosen, weights

        self.ops.route = recording

    def by_layer(self, layers: int) -> torch.Tensor:
        """int [L, T, k] of all steps since the last call."""
        steps = [torch.stack(self.calls[at : at + layers]) for at in range(0, len(self.calls), layers)]
        self.calls.clear()
        return torch.cat(steps, 1)


@dataclass(frozen=True)
class Case:
    """The engine with or without activation quantisation, and how far it may be from the goldens.

    Rounding to FP8 and FP4 turns float32's last bits into whole steps here and there, and a step can change a choice.
    """

    variant: str
    tolerance: float  # of a logprob
    level: float  # how far below the likeliest token a golden one may be
    experts: float  # share of rows and layers with the same experts
    recorded: RecordedRoutes
    driver: Driver


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    def make(variant: str, *limits: float) -> Case:
        recorded = RecordedRoutes()
        model = load_model(FOLDER, quantise=variant == "quantised", ops=recorded.ops)
        return Case(variant, *limits, recorded, Driver(model, slots=1, max_length=LONGEST + 32))

    return {"plain": make("plain", 2e-3, 1e-3, 0.999), "quantised": make("quantised", 0.6, 0.4, 0.95)}


def test_long_prompts_bind_what_short_ones_do_not() -> None:
    """More entries than are selected, and more than the candidate blocks hold."""
    fields = json.loads((FOLDER / "config.json").read_text())["text_config"]
    assert len(ANSWERS) >= 26
    assert max(fields["sliding_window"], fields["index_topk"]) < LONGEST
    assert fields["candidate_topk_blocks"] * fields["candidate_block_size"] < LONGEST


@pytest.mark.parametrize("answer", ANSWERS)
def test_greedy_answer(cases: dict[str, Case], answer: str) -> None:
    variant, number = answer.split()
    case = cases[variant]

    def golden(name: str) -> torch.Tensor:
        return torch.from_numpy(GOLDEN[f"{case.variant}_{name}_{number}"])

    prompt, tokens, experts = golden("prompt").tolist(), golden("greedy").tolist(), golden("experts")
    case.recorded.calls.clear()
    rows = [case.driver.prefill(0, prompt, 64)[-1]]
    rows += [case.driver.step([Chunk(0, [token])])[0][-1] for token in tokens[:-1]]
    logprobs = torch.stack(rows).log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(tokens).unsqueeze(1)).squeeze(1)
    assert (logprobs.amax(-1) - chosen).max() <= case.level
    assert (chosen - golden("logprobs")).abs().max() < case.tolerance
    routed = case.recorded.by_layer(len(experts))
    assert routed.shape == experts.shape
    assert (routed == experts).all(-1).float().mean() >= case.experts
