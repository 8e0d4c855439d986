"""Building an engine through the plugin door, with a backend and a model of the test's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_kit import ThreadQueue, expected_greedy, greedy
from fake_model import INFO, SPEC, FakeModel

from deepinfer_core.api.config import EngineConfig, read_environment
from deepinfer_core.api.errors import CheckpointError, ConfigError, DeepInferError
from deepinfer_core.engine.build import Built, build_engine
from deepinfer_core.interfaces.backend import Capabilities, Probe
from deepinfer_core.interfaces.cache import CacheSpec
from deepinfer_core.interfaces.model import ModelContext, ModelInfo, ModelOptions
from deepinfer_core.interfaces.ops import RowFormat, WeightFormat
from deepinfer_core.interfaces.parallel import Group
from deepinfer_core.ops.catalogue import CATALOGUE
from deepinfer_core.parallel.communicator import OneRankCommunicator
from deepinfer_core.plugin.loader import Plugins
from deepinfer_core.plugin.registry import Registry


class ToyDevice:
    """The host as a device that counts its closing."""

    torch_device = torch.device("cpu")

    def __init__(self, kernels: Mapping[str, Any]) -> None:
        self._kernels = kernels
        self.closed = 0

    def memory(self) -> tuple[int, int]:
        return 1 << 24, 1 << 24

    def kernels(self) -> Mapping[str, Any]:
        return self._kernels

    def queue(self) -> ThreadQueue:
        return ThreadQueue()

    def communicator(self, group: Group) -> OneRankCommunicator:
        return OneRankCommunicator(group)

    def close(self) -> None:
        self.closed += 1


class ToyBackend:
    name = "toy"
    interface = 1

    def __init__(self, capabilities: Capabilities, kernels: Mapping[str, Any]) -> None:
        self._capabilities = capabilities
        self.device = ToyDevice(kernels)

    def probe(self) -> Probe:
        return Probe(True, "always there")

    def capabilities(self) -> Capabilities:
        return self._capabilities

    def open(self, index: int) -> ToyDevice:
        return self.device


class ToyFactory:
    """Loads the fake model, and remembers with what."""

    def __init__(self, info: ModelInfo = INFO) -> None:
        self._info = info
        self.context: ModelContext | None = None

    def inspect(self, folder: Path, config: Mapping[str, Any]) -> ModelInfo:
        return self._info

    def cache_spec(self, config: Mapping[str, Any], options: ModelOptions) -> CacheSpec:
        return SPEC

    def load(self, folder: Path, config: Mapping[str, Any], context: ModelContext) -> FakeModel:
        self.context = context
        return FakeModel()


CAPABLE = Capabilities(block_sizes=(4, 16), max_slots=32, max_step_tokens=128)
OPTIONS: dict[str, Any] = {"backend": "toy", "block_size": 4, "max_running": 4, "max_step_tokens": 16, "max_length": 64}


class Setup:
    """A model folder and a registry; `build` makes an engine of them."""

    def __init__(
        self, folder: Path, capabilities: Capabilities = CAPABLE, info: ModelInfo = INFO, **kernels: Any
    ) -> None:
        self.folder = folder
        self.backend = ToyBackend(capabilities, kernels)
        self.factory = ToyFactory(info)
        self.registry = Registry()
        self.registry.backends.registrar("test")("toy", lambda: self.backend)
        self.registry.models.registrar("test")("Fake", lambda: self.factory)
        (folder / "config.json").write_text(json.dumps({"architectures": ["Fake"]}))

    def build(self, variables: Mapping[str, str] | None = None, **options: Any) -> Built:
        config = EngineConfig(**{"model": str(self.folder), **OPTIONS, **options})
        return build_engine(config, read_environment(variables or {}), Plugins(self.registry, (), (), {}))


def refused(setup: Setup, error: type[DeepInferError] = ConfigError, **options: Any) -> str:
    """The message with which a build is refused; the model was not loaded and no device is left open."""
    with pytest.raises(error) as caught:
        setup.build(**options)
    assert setup.factory.context is None
    return str(caught.value)


def test_what_is_built_answers(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    built = setup.build()
    built.engine.add(greedy([9, 10, 11], max_tokens=8))
    outputs = []
    while built.engine.has_unfinished():
        outputs += built.engine.step()
    assert list(outputs[0].output.outputs[0].token_ids) == expected_greedy([9, 10, 11], 8)
    assert (built.max_length, built.tokenizer, built.layout.slots) == (64, None, 4)
    built.close()
    assert setup.backend.device.closed == 1


def test_the_model_is_given_the_options(tmp_path: Path) -> None:
    setup = Setup(tmp_path, replace(CAPABLE, dtypes=("bfloat16", "float32")), replace(INFO, num_experts=6))
    setup.build(activation_quant="off").close()
    context = setup.factory.context
    assert context is not None
    assert context.options == ModelOptions(torch.bfloat16, activation_quant=False)
    assert context.placement.num_physical == 6
    assert context.expert_communicator.group == Group("ep")


def test_the_report_says_what_runs_on_a_reference(tmp_path: Path) -> None:
    setup = Setup(tmp_path, rms_norm=CATALOGUE["rms_norm"].reference)
    built = setup.build({"DEEPINFER_BACKEMD": "x"})
    (line,) = [line for line in built.report if "no kernel" in line]
    assert "linear" in line
    assert "rms_norm" not in line
    assert any("DEEPINFER_BACKEMD" in line for line in built.report)
    assert any("backend toy: asked for" in line for line in built.report)
    built.close()


def test_strict_refuses_what_would_run_on_a_reference(tmp_path: Path) -> None:
    setup = Setup(tmp_path, rms_norm=CATALOGUE["rms_norm"].reference)
    assert "has no kernel for apply_rope" in refused(setup, strict=True)
    assert setup.backend.device.closed == 1


def test_strict_refuses_a_variable_that_nobody_reads(tmp_path: Path) -> None:
    setup = Setup(tmp_path, **{name: spec.reference for name, spec in CATALOGUE.items()})
    variables = {"DEEPINFER_BACKENT": "cpu"}
    assert "DEEPINFER_BACKENT is not one of ours; did you mean" in refused(setup, variables=variables, strict=True)
    built = setup.build(variables)
    assert any("DEEPINFER_BACKENT" in line for line in built.report)
    built.close()


def test_strict_accepts_a_backend_with_every_kernel(tmp_path: Path) -> None:
    setup = Setup(tmp_path, **{name: spec.reference for name, spec in CATALOGUE.items()})
    setup.build(strict=True).close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "bfloat16"}, "dtype = 'bfloat16' is not allowed: backend toy computes in float32"),
        ({"block_size": 8}, "block_size = 8 is not allowed: backend toy takes 4, 16"),
        ({"max_running": 33}, "max_running = 33 is not allowed: backend toy takes at most 32"),
        ({"max_step_tokens": 129}, "max_step_tokens = 129 is not allowed: backend toy takes at most 128"),
        ({"max_length": 129}, "max_length = 129 is not allowed: the model was trained for 128 positions"),
        ({"max_length": 1}, "max_length = 1"),
        ({"decoder_rows": 4, "prefill": "exact"}, "decoder_rows is for prefill = 'bounded'"),
        ({"model": "nowhere"}, "no model 'nowhere'"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    assert message in refused(Setup(tmp_path), **options)


def test_a_format_that_the_backend_lacks_is_refused_by_name(tmp_path: Path) -> None:
    fp4 = replace(INFO, weight_formats=(WeightFormat.FP4, WeightFormat.BF16))
    assert "no weights in fp4" in refused(Setup(tmp_path, info=fp4))
    assert "keeps no caches in f32" in refused(Setup(tmp_path, replace(CAPABLE, kv_formats=(RowFormat.BF16,))))


def test_decoder_rows_need_a_decoder_half(tmp_path: Path) -> None:
    assert "no decoder half" in refused(Setup(tmp_path, info=replace(INFO, decoder_rows=0)), decoder_rows=4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["Other"]}, "architecture 'Other', which no plugin registers: known are Fake"),
        ({"architectures": []}, "must name one model"),
        ({"architectures": "Fake"}, "must name one model"),
        ([], "must name one model"),
    ],
)
def test_a_checkpoint_must_be_of_a_known_architecture(tmp_path: Path, config: Any, message: str) -> None:
    setup = Setup(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert message in refused(setup, CheckpointError)


def test_a_cache_that_cannot_fit_is_refused_and_the_device_given_back(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    with pytest.raises(ConfigError, match="cache_tokens = 100000000"):
        setup.build(cache_tokens=100_000_000)
    assert setup.backend.device.closed == 1


def test_every_registered_observer_watches(tmp_path: Path) -> None:
    class Counter:
        def __init__(self) -> None:
            self.finished = 0

        def on_phase(self, phase: Any) -> None:
            pass

        def on_step(self, step: int, rows: int, stats: Any) -> None:
            pass

        def on_finish(self, output: Any) -> None:
            self.finished += 1

    setup, counter = Setup(tmp_path), Counter()
    setup.registry.observers.registrar("test")("counter", lambda: counter)
    built = setup.build()
    built.engine.add(greedy([], max_tokens=1))
    built.engine.step()
    assert counter.finished == 1
    built.close()
