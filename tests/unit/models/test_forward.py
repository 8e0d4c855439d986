"""What the goldens do not show of a forward: no rows, half precision, formats of the caches."""

import pytest
import torch
from made_checkpoints import TINY
from model_driver import Driver, load_model

from deepinfer_core.interfaces.ops import RowFormat

PROMPT = list(range(100, 140))


def formats(model):
    spec = model.cache_spec()
    return {pool.name: (pool.format, pool.dim) for pool in (*spec.paged, *spec.rings)}


@pytest.fixture(scope="module")
def quantised():
    return load_model(TINY, quantise=True)


@pytest.mark.parametrize("padding", [0, 2])
def test_a_step_without_rows(quantised, padding):
    driver = Driver(quantised, padding=padding)
    before = {name: pool.clone() for name, pool in {**driver.pools.paged, **driver.pools.rings}.items()}
    assert driver.step([]) == []
    for name, pool in {**driver.pools.paged, **driver.pools.rings}.items():
        assert torch.equal(pool, before[name]), name


def test_quantised_caches_hold_the_checkpoints_own_formats(quantised):
    assert formats(quantised) == {
        "latent.2": (RowFormat.FP4_E4M3_16, 64),
        "index.2": (RowFormat.FP4_E8M0_32, 32),
        "latent.5": (RowFormat.FP4_E4M3_16, 64),
        "index.5": (RowFormat.FP4_E8M0_32, 32),
        "window": (RowFormat.FP8_E8M0_32, 64),
        "pending.2": (RowFormat.F32, 128),
    }


def test_ring_rows_leave_room_for_drafts_of_two_steps(quantised):
    rings = {ring.name: (ring.rows, ring.layers, ring.scratch) for ring in quantised.cache_spec().rings}
    assert rings == {"window": (16 + 2 * 6, 8, True), "pending.2": (2 + 2 * 6, 1, False)}


@pytest.mark.parametrize("quantise", [False, True])
def test_bfloat16_stays_near_float32_at_first(quantise):
    """A random model soon drifts in half precision; its first tokens do not."""
    exact = Driver(load_model(TINY, quantise)).prefill(0, PROMPT, 40)
    model = load_model(TINY, quantise, torch.bfloat16)
    half = Driver(model).prefill(0, PROMPT, 40)
    assert half.dtype == torch.float32
    assert half.isfinite().all()
    assert not torch.equal(half, exact)
    spread = exact[0].std()
    assert (half[0] - exact[0]).abs().max() < spread
    plain = {RowFormat.BF16, RowFormat.F32}
    assert quantise or {format for format, _ in formats(model).values()} == plain
