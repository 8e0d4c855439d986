"""Loading: a backend comes in by the plugin door, says what it is, and changes nothing of the program around it."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
import torch

from deepinfer_conformance.options import DTYPES
from deepinfer_conformance.program import describe_program
from deepinfer_conformance.subject import MUTANT, Subject
from deepinfer_core.api.errors import DeepInferError
from deepinfer_core.interfaces.backend import Backend, Capabilities, Determinism, Device, Probe, Queue
from deepinfer_core.interfaces.ops import RowFormat, WeightFormat
from deepinfer_core.interfaces.parallel import Group
from deepinfer_core.ops.catalogue import CATALOGUE
from deepinfer_core.plugin.version import INTERFACE, OLDEST_BUILT_FOR

pytestmark = pytest.mark.level("smoke")

FAR = 9999  # a device index that no machine has

LOADING = """
import sys
from importlib.metadata import entry_points
from deepinfer_core.api.config import read_environment
from deepinfer_core.plugin.loader import load_plugins
(point,) = [one for one in entry_points(group="deepinfer") if one.name == sys.argv[1]]
before = set(sys.modules)
plugins = load_plugins(read_environment(), found=[point], stop=False)
assert not plugins.registry.failures, plugins.registry.failures
print("torch" in set(sys.modules) - before)
"""

PROBING = """
import json, sys
from deepinfer_conformance.program import describe_program
from deepinfer_core.api.config import read_environment
from deepinfer_core.plugin.loader import load_plugins
registry = load_plugins(read_environment(), stop=False).registry
before = describe_program()
backend = registry.backends[sys.argv[1]]
backend.probe(), backend.capabilities()
print(json.dumps([before, describe_program()]))
"""


def in_a_program_of_its_own(program: str, argument: str) -> str:
    """The last line that the program prints."""
    command = [sys.executable, "-c", program, argument]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_the_backend_and_its_device_have_the_members_of_the_contract(subject: Subject) -> None:
    assert isinstance(subject.backend, Backend)
    assert isinstance(subject.device, Device)
    assert isinstance(subject.queue, Queue)


def test_the_backend_has_the_name_that_it_is_registered_under(subject: Subject) -> None:
    assert subject.backend.name == subject.name or subject.name.startswith(MUTANT)


def test_the_interface_version_is_one_that_this_core_supports(subject: Subject) -> None:
    assert OLDEST_BUILT_FOR <= subject.backend.interface <= INTERFACE


def test_its_plugin_loaded_and_says_where_it_came_from(subject: Subject) -> None:
    plugin = subject.plugins.registry.backends.plugin_of(subject.name)
    for outcome in subject.plugins.outcomes:
        if outcome.plugin == plugin:
            assert (outcome.status, bool(outcome.distribution), bool(outcome.version)) == ("loaded", True, True)


def test_registering_it_loads_no_torch(subject: Subject) -> None:
    """Every command of the program loads every plugin: help must stay quick, and a broken driver must not matter."""
    plugin = subject.plugins.registry.backends.plugin_of(subject.name)
    if plugin in subject.plugins.managers:
        assert in_a_program_of_its_own(LOADING, plugin) == "False"


@pytest.mark.level("core")
def test_making_and_probing_it_changes_nothing_of_the_program(subject: Subject) -> None:
    if not subject.name.startswith(MUTANT):
        before, after = json.loads(in_a_program_of_its_own(PROBING, subject.name))
        assert after == before


def test_opening_it_changes_nothing_of_the_program(subject: Subject) -> None:
    before = describe_program()
    device = subject.backend.open(0)
    try:
        device.kernels()
        device.queue().submit(lambda: None).wait()
        assert describe_program() == before
    finally:
        device.close()
    assert describe_program() == before


def test_the_probe_is_a_sentence_and_says_the_same_again(subject: Subject) -> None:
    first, again = subject.backend.probe(), subject.backend.probe()
    for probe in (first, again):
        assert isinstance(probe, Probe)
        assert probe.available
        assert probe.reason.strip()
        assert all(isinstance(name, str) and name for name in probe.devices)
        assert all(isinstance(text, str) for pair in probe.versions.items() for text in pair)
    assert first.devices == again.devices


def test_the_capabilities_are_of_the_contract_and_do_not_change(subject: Subject) -> None:
    declared = subject.backend.capabilities()
    assert isinstance(declared, Capabilities)
    assert declared == subject.backend.capabilities()
    assert declared.dtypes
    assert set(declared.dtypes) <= set(DTYPES)
    assert declared.weight_formats
    assert all(isinstance(one, WeightFormat) for one in declared.weight_formats)
    assert declared.kv_formats
    assert all(isinstance(one, RowFormat) for one in declared.kv_formats)
    assert isinstance(declared.determinism, Determinism)
    assert min(declared.max_step_tokens, declared.max_slots) >= 1
    assert declared.block_sizes
    assert min(declared.block_sizes) >= 1
    assert all(getattr(declared, field.name) is not None for field in fields(declared))


def test_a_device_that_is_not_there_is_refused_by_name(subject: Subject) -> None:
    with pytest.raises(DeepInferError, match=str(FAR)):
        subject.backend.open(FAR).close()


def test_it_opens_again_while_it_is_open(subject: Subject) -> None:
    """An engine opens its own device, beside the one of a tool that looks at it."""
    x, weight = torch.ones(3, 8), torch.full((8,), 2.0)

    def norm(device: Device) -> torch.Tensor:
        there = [value.to(device.torch_device) for value in (x, weight)]
        kernel = device.kernels().get("rms_norm", CATALOGUE["rms_norm"].reference)
        result: torch.Tensor = device.queue().submit(lambda: kernel(*there, 0.0).cpu()).wait()
        return result

    for _ in range(2):
        second = subject.backend.open(0)
        try:
            assert norm(second).equal(torch.full((3, 8), 2.0))
            assert norm(subject.device).equal(torch.full((3, 8), 2.0))
        finally:
            second.close()
        assert norm(subject.device).equal(torch.full((3, 8), 2.0))


def test_every_kernel_is_an_op_with_the_references_parameters(subject: Subject) -> None:
    kernels = subject.device.kernels()
    assert set(kernels) <= set(CATALOGUE)
    for name, kernel in kernels.items():
        assert _parameters(kernel) == _parameters(CATALOGUE[name].reference), name


def _parameters(function: Any) -> list[tuple[Any, ...]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


def test_one_rank_communicates_with_itself(subject: Subject) -> None:
    """An engine asks for its communicators even where it is alone."""
    communicator = subject.device.communicator(Group("ep"))
    x = torch.arange(6.0, device=subject.torch_device).view(3, 2)
    assert communicator.group == Group("ep")
    results = (
        lambda: communicator.all_reduce(x),
        lambda: communicator.all_gather(x),
        lambda: communicator.reduce_scatter(x),
        lambda: communicator.all_to_all(x, [3], [3]),
        lambda: communicator.broadcast(x, 0),
    )
    assert all(subject.run(call).cpu().equal(x.cpu()) for call in results)
    subject.run(communicator.barrier)
