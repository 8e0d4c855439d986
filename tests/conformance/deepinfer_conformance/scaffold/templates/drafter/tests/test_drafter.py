"""The drafter registers and proposes tokens of the right shape."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from deepinfer_core.api.config import read_environment
from deepinfer_core.plugin.loader import load_plugins

from deepinfer_myplugin.drafter import MyPluginDrafter

STEP: Any = None  # this drafter looks at nothing of the step


def test_the_plugin_registers_the_drafter() -> None:
    point = EntryPoint("myplugin", "deepinfer_myplugin.plugin", "deepinfer")
    plugins = load_plugins(read_environment({}), found=[point])
    assert isinstance(plugins.registry.drafters["myplugin"], MyPluginDrafter)


@pytest.mark.parametrize("tokens", [[], [7], [7, 0, 9]])
def test_each_request_gets_its_newest_token_again(tokens: list[int]) -> None:
    lengths = torch.full((len(tokens),), 12, dtype=torch.int32)
    proposal = MyPluginDrafter().propose(STEP, torch.tensor(tokens, dtype=torch.int64), lengths)
    assert proposal.tokens.tolist() == [[token, token] for token in tokens]
    assert proposal.confidence.shape == proposal.tokens.shape
    assert proposal.confidence.dtype == torch.float32
