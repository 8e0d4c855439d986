"""The dense implementation against the stored goldens, and that its gradients are those of its forward.

It runs in float64, so that no rounding of ours decides on which side of a quantisation boundary a number falls.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from dense_v41 import DenseModel, Quantisation, load_folder
from torch import Tensor

DATA = Path(__file__).parents[1] / "data"
LOGITS = np.load(DATA / "golden_logits.npz")
MORE = np.load(DATA / "golden_more.npz")
IDS = torch.tensor(LOGITS["ids"]).unsqueeze(0)
TOLERANCE = 1e-4


@pytest.fixture(scope="module", params=[0, 1], ids=["plain", "quantised"])
def case(request: pytest.FixtureRequest) -> tuple[str, DenseModel]:
    """(suffix of the goldens' names, frozen model), without and with activation quantisation."""
    model = load_folder(DATA / "tiny_v41", Quantisation(activations=bool(request.param)), torch.float64)
    return f"aq{request.param}", model.requires_grad_(False)


def golden(name: str) -> Tensor:
    return torch.tensor(MORE[name])


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE, check_dtype=False)


def test_logits(case: tuple[str, DenseModel]) -> None:
    suffix, model = case
    expected = torch.tensor(LOGITS[f"f32_{suffix}"])
    logits = model(IDS).logits[0]
    assert_close(logits, expected)
    assert torch.equal(logits.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize("rows", [22, 40])
def test_bounded_decoder_rows(case: tuple[str, DenseModel], rows: int) -> None:
    suffix, model = case
    logits = model(IDS, decoder_start=IDS.shape[1] - rows).logits
    assert logits.shape[1] == rows
    assert_close(logits[0, -1], golden(f"bounded_{rows}_{suffix}"))


def test_greedy_continuation(case: tuple[str, DenseModel]) -> None:
    suffix, model = case
    expected = golden(f"greedy_{suffix}")
    ids = IDS[:, :37]
    for _ in expected:
        ids = torch.cat((ids, model(ids).logits[:, -1:].argmax(-1)), 1)
    assert torch.equal(ids[0, 37:], expected)


def test_drafts(case: tuple[str, DenseModel]) -> None:
    suffix, model = case
    output = model(IDS[:, :60])
    anchor_token = output.logits[:, -1:, :].argmax(-1, keepdim=True)
    assert anchor_token.item() == golden(f"anchor_{suffix}")
    draft = model.draft(output.taps, 0, torch.tensor([59]), anchor_token)
    assert torch.equal(draft.tokens[0, 0], golden(f"drafts_{suffix}"))
    assert_close(draft.logits[0, 0], golden(f"draft_logits_{suffix}"))
    assert_close(draft.confidence[0, 0], golden(f"confidence_{suffix}"))


def test_teacher_forced_drafts_follow_the_given_tokens(case: tuple[str, DenseModel]) -> None:
    """Fed its own greedy drafts, teacher forcing gives them again; several anchors at once are each their own."""
    _, model = case
    taps, anchors = model(IDS).taps, torch.tensor([20, 59, 100])
    first = IDS[:, anchors + 1].unsqueeze(-1)
    greedy = model.draft(taps, 0, anchors, first)
    forced = model.draft(taps, 0, anchors, torch.cat((first, greedy.tokens[..., :-1]), -1))
    assert torch.equal(forced.tokens, greedy.tokens)
    assert_close(forced.logits, greedy.logits)
    alone = model.draft(taps, 0, anchors[1:2], first[:, 1:2])
    assert_close(alone.logits, greedy.logits[:, 1:2])


def test_drafts_read_no_more_than_their_window(case: tuple[str, DenseModel]) -> None:
    _, model = case
    taps, anchor = model(IDS).taps, torch.tensor([59])
    token = torch.tensor([[[7]]])
    window = model.config.sliding_window
    whole = model.draft(taps, 0, anchor, token).logits
    assert_close(model.draft(taps[:, 60 - window :], 60 - window, anchor, token).logits, whole)
    shorter = model.draft(taps[:, 61 - window :], 61 - window, anchor, token).logits
    assert (shorter - whole).abs().max() > TOLERANCE


def test_sequences_of_a_batch_are_independent_and_causal(case: tuple[str, DenseModel]) -> None:
    _, model = case
    other = IDS.flip(1)
    logits = model(torch.cat((IDS, other))).logits
    assert_close(logits[:1], model(IDS).logits)
    assert_close(logits[1:, :50], model(other[:, :50]).logits)


def test_checkpoint_weights_lie_on_the_grid() -> None:
    with torch.no_grad():
        rounded = load_folder(DATA / "tiny_v41", Quantisation(weights=True))(IDS).logits
        assert torch.equal(rounded, load_folder(DATA / "tiny_v41")(IDS).logits)


def trainable_loss(model: DenseModel) -> Tensor:
    """A number that every parameter but the indexers' has a part in."""
    ids, anchors = IDS[:, :40], torch.tensor([9, 25])
    output = model(ids)
    tokens = ids[:, anchors[:, None] + 1 + torch.arange(model.config.dspark_block_size)]
    draft = model.draft(output.taps, 0, anchors, tokens)
    loss = torch.nn.functional.cross_entropy(output.logits[0, :-1], ids[0, 1:])
    return loss + draft.logits.logsumexp(-1).mean() + draft.confidence.sigmoid().mean()


def of_indexer(name: str) -> bool:
    return ".indexer." in name


@pytest.mark.parametrize("quantised", [False, True])
def test_every_parameter_gets_a_gradient(quantised: bool) -> None:
    model = load_folder(DATA / "tiny_v41", Quantisation(weights=quantised, activations=quantised))
    trainable_loss(model).backward()
    for name, parameter in model.named_parameters():
        if of_indexer(name):
            assert parameter.grad is None, name
        else:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().max() > 0, name


def test_index_loss_trains_the_indexers_alone() -> None:
    model = load_folder(DATA / "tiny_v41", Quantisation(weights=True, activations=True))
    loss = model(IDS, index_loss=True).index_loss
    loss.backward()
    assert loss.item() > 0
    with_gradient = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    assert with_gradient == {n for n, _ in model.named_parameters() if of_indexer(n)}


@pytest.mark.parametrize("part", ["embed", "attn.wq_a", "compressor", "hc_attn", "gate", "experts", "engram", "mtp"])
def test_gradients_are_derivatives(part: str) -> None:
    """In float64, along a random direction in the parameters of one part of the model."""
    model = load_folder(DATA / "tiny_v41", dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    chosen = [p for name, p in model.named_parameters() if part in name and not of_indexer(name)]
    direction = [torch.randn(p.shape, generator=generator, dtype=torch.float64) * p.detach().std() for p in chosen]
    gradients = torch.autograd.grad(trainable_loss(model), chosen)
    slope = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True))
    step = 1e-7
    values = []
    with torch.no_grad():
        for sign in (1, -2):
            torch._foreach_add_(chosen, direction, alpha=sign * step)
            values.append(trainable_loss(model))
    torch.testing.assert_close((values[0] - values[1]) / (2 * step), slope, rtol=1e-4, atol=1e-6)
