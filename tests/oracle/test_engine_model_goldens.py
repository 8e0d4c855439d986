"""The engine's model against golden outputs of an independent dense implementation: any chunking, any neighbours.

It runs on the CPU backend's kernels, and where that is said on the reference ops."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from model_driver import Chunk, Driver, load_model

from deepinfer_core.ops.table import resolve

DATA = Path(__file__).parents[1] / "data"
GOLDEN = np.load(DATA / "golden_logits.npz")
MORE = np.load(DATA / "golden_more.npz")
IDS = [int(token) for token in GOLDEN["ids"]]
TOLERANCE = 1e-4

both = pytest.mark.parametrize("quantise", [False, True], ids=["plain", "quantised"])


@cache
def tiny(quantise: bool):
    return load_model(DATA / "tiny_v41", quantise)


def golden(quantise: bool) -> torch.Tensor:
    return torch.from_numpy(GOLDEN[f"f32_aq{int(quantise)}"])


def assert_golden(logits: torch.Tensor, expected: torch.Tensor) -> None:
    assert logits.shape == expected.shape
    assert (logits - expected).abs().max() < TOLERANCE
    assert torch.equal(logits.argmax(-1), expected.argmax(-1))


@both
@pytest.mark.parametrize("chunk", [1, 3, 7, 64, 121])
def test_every_row_in_chunks(quantise, chunk):
    assert_golden(Driver(tiny(quantise)).prefill(2, IDS, chunk), golden(quantise))


@both
@pytest.mark.parametrize("chunk", [7, 121])
def test_reference_ops_in_chunks(quantise, chunk):
    model = load_model(DATA / "tiny_v41", quantise, ops=resolve({}))
    assert_golden(Driver(model).prefill(2, IDS, chunk), golden(quantise))


@both
def test_prefill_then_decode(quantise):
    driver = Driver(tiny(quantise))
    rows = [driver.prefill(0, IDS[:100], 64)]
    rows += [driver.step([Chunk(0, [token])])[0] for token in IDS[100:]]
    assert_golden(torch.cat(rows), golden(quantise))


@both
def test_requests_interleave_in_any_slots(quantise):
    """Three requests of other lengths, chunk sizes and arrival share their steps, with padding rows behind them."""
    driver = Driver(tiny(quantise), padding=3)
    plans = {3: (121, 11, 0), 0: (25, 1, 2), 1: (97, 64, 5)}  # slot: (tokens, chunk, first step)
    rows = {slot: [] for slot in plans}
    step = 0
    while any(driver.lengths[slot] < plan[0] for slot, plan in plans.items()):
        chunks = []
        for slot, (total, size, arrival) in plans.items():
            at = driver.lengths[slot]
            if step >= arrival and at < total:
                chunks.append(Chunk(slot, IDS[at : min(at + size, total)]))
        for chunk, logits in zip(chunks, driver.step(chunks), strict=True):
            rows[chunk.slot].append(logits)
        step += 1
    for slot, (total, _, _) in plans.items():
        assert_golden(torch.cat(rows[slot]), golden(quantise)[:total])


@both
def test_a_slot_is_used_again(quantise):
    """What an earlier request left in a slot's caches changes nothing."""
    driver = Driver(tiny(quantise))
    driver.prefill(1, IDS[::-1], 50)
    assert_golden(driver.prefill(1, IDS, 50), golden(quantise))


@both
@pytest.mark.parametrize("poison", [0xFF, 0x00])
def test_unwritten_rows_are_never_read(quantise, poison):
    """Pools full of NaN, zeros or the largest numbers give the same bits."""
    expected = Driver(tiny(quantise), poison=0x35).prefill(0, IDS, 31)
    assert torch.equal(Driver(tiny(quantise), poison=poison).prefill(0, IDS, 31), expected)


@both
@pytest.mark.parametrize("chunk", [7, 64, 121])
@pytest.mark.parametrize("kept", [22, 40])
def test_bounded_prefill(quantise, kept, chunk):
    """The decoder half runs the last `kept` rows only; chunks wholly before them keep no row."""
    logits = Driver(tiny(quantise)).prefill(0, IDS, chunk, decoder_start=len(IDS) - kept)
    assert logits.shape[0] == kept
    assert_golden(logits[-1:], torch.from_numpy(MORE[f"bounded_{kept}_aq{int(quantise)}"])[None])


@both
def test_bounded_prefill_row_by_row(quantise):
    driver, start = Driver(tiny(quantise)), len(IDS) - 22
    driver.step([Chunk(0, IDS[: start - 2], start)])
    logits = [driver.step([Chunk(0, [token], start)])[0] for token in IDS[start - 2 :]]
    assert [part.shape[0] for part in logits] == [0, 0] + [1] * 22
    assert_golden(logits[-1], torch.from_numpy(MORE[f"bounded_22_aq{int(quantise)}"])[None])


def test_bounded_prefill_differs_from_exact():
    """So that the test above cannot pass by ignoring the bound."""
    bounded = torch.from_numpy(MORE["bounded_22_aq0"])
    assert (bounded - golden(False)[-1]).abs().max() > 100 * TOLERANCE


@both
def test_bounded_and_exact_requests_share_a_step(quantise):
    driver = Driver(tiny(quantise))
    start, rows, last = len(IDS) - 22, [], None
    for at in range(0, len(IDS), 25):
        part = IDS[at : at + 25]
        bounded, exact = driver.step([Chunk(2, part, start), Chunk(0, part)])
        rows.append(exact)
        last = bounded[-1:]
    assert_golden(torch.cat(rows), golden(quantise))
    assert_golden(last, torch.from_numpy(MORE[f"bounded_22_aq{int(quantise)}"])[None])


@both
def test_no_logits_wanted(quantise):
    driver = Driver(tiny(quantise))
    assert driver.step([Chunk(0, IDS[:90], wanted=False)])[0].shape == (0, 512)
    assert_golden(driver.step([Chunk(0, IDS[90:])])[0], golden(quantise)[90:])


@both
def test_greedy_continuation(quantise):
    expected = [int(token) for token in MORE[f"greedy_aq{int(quantise)}"]]
    assert Driver(tiny(quantise)).greedy(0, IDS[:37], len(expected), chunk=15) == expected
