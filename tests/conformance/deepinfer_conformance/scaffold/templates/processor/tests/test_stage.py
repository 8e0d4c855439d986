"""The processor registers, keeps what is near the best logit, and treats each row by itself."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
import torch
from deepinfer_core.api.config import read_environment
from deepinfer_core.interfaces.sampler import SampledRows
from deepinfer_core.plugin.loader import load_plugins
from torch import Tensor

from deepinfer_myplugin.stage import MARGIN, MyPluginStage


def run(logits: Tensor) -> Tensor:
    count = torch.arange(logits.shape[0])
    return MyPluginStage().apply(logits, SampledRows(slot=count, position=count, generated=count))


def test_the_plugin_registers_the_processor() -> None:
    point = EntryPoint("myplugin", "deepinfer_myplugin.plugin", "deepinfer")
    plugins = load_plugins(read_environment({}), found=[point])
    assert isinstance(plugins.registry.processors["myplugin"], MyPluginStage)


def test_only_tokens_near_the_best_are_left() -> None:
    logits = torch.tensor([[1.0, 1.0 - MARGIN, 0.5 - MARGIN], [-9.0, -8.0, -8.0 - 2 * MARGIN]])
    expected = torch.tensor([[1.0, 1.0 - MARGIN, -torch.inf], [-9.0, -8.0, -torch.inf]])
    torch.testing.assert_close(run(logits), expected, rtol=0, atol=0)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_row_does_not_depend_on_its_neighbours(rows: int) -> None:
    logits = 10 * torch.randn(rows, 33, generator=torch.Generator().manual_seed(0))
    alone = [run(row) for row in logits.split(1)] if rows else [logits]
    torch.testing.assert_close(run(logits), torch.cat(alone), rtol=0, atol=0)
