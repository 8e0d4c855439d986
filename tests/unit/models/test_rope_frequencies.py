"""Rotary frequencies against the formula, written out once more in float64."""

import math

import numpy as np
import pytest
from made_checkpoints import tiny_config
from released import released_config

from deepinfer_core.models.deepseek_v41.parse import parse_config
from deepinfer_core.models.deepseek_v41.rope import inverse_frequencies


def reference(theta, dim, factor=1.0, low=0, high=1):
    """Pairs up to `low` turn as they did, pairs from `high` on `factor` times slower."""
    found = []
    for pair in range(dim // 2):
        share = min(max((pair - low) / (high - low), 0.0), 1.0)
        frequency = theta ** (-2 * pair / dim)
        found.append(frequency / factor * share + frequency * (1 - share))
    return np.array(found)


def test_layers_with_a_window_only_are_plain():
    found = inverse_frequencies(parse_config(released_config()), ratio=0)
    np.testing.assert_allclose(found.numpy(), reference(10_000, 64), rtol=1e-6)


@pytest.mark.parametrize("ratio", [1, 2])
def test_compressed_layers_are_stretched_between_pairs_15_and_25(ratio):
    found = inverse_frequencies(parse_config(released_config()), ratio)
    np.testing.assert_allclose(found.numpy(), reference(160_000, 64, 16, 15, 25), rtol=1e-6)


def test_the_tiny_checkpoint_is_stretched_where_its_own_context_says():
    found = inverse_frequencies(parse_config(tiny_config()), ratio=2)
    low = max(math.floor(16 * math.log(64 / (32 * 2 * math.pi)) / (2 * math.log(160_000))), 0)
    high = math.ceil(16 * math.log(64 / (2 * math.pi)) / (2 * math.log(160_000)))
    np.testing.assert_allclose(found.numpy(), reference(160_000, 16, 16, low, high), rtol=1e-6)
