import subprocess
import sys

import pytest
import torch

from deepinfer_core.api.errors import ConfigError, PluginError
from deepinfer_core.interfaces.backend import Backend, Device
from deepinfer_core.interfaces.parallel import Group
from deepinfer_core.plugin.version import refusal
from deepinfer_cpu.backend import CpuBackend


@pytest.fixture
def device():
    device = CpuBackend().open(0)
    yield device
    device.close()


def test_it_keeps_the_contract(device):
    backend = CpuBackend()
    assert isinstance(backend, Backend)
    assert isinstance(device, Device)
    assert refusal(backend.interface, 1) is None


def test_it_is_always_available_and_no_accelerator():
    backend = CpuBackend(threads=3)
    assert backend.probe().available
    assert backend.probe().versions["threads"] == "3"
    assert not backend.capabilities().accelerator


def test_it_has_one_device():
    with pytest.raises(ConfigError, match="device_index = 1"):
        CpuBackend().open(1)


def test_it_runs_one_rank(device):
    x = torch.arange(3)
    assert device.communicator(Group("ep")).all_reduce(x) is x
    with pytest.raises(ConfigError, match="group 'ep' has 2 ranks"):
        device.communicator(Group("ep", ranks=(0, 1)))


def test_closing_the_device_closes_its_queues(device):
    event = device.queue().submit(lambda: 1)
    device.close()
    assert event.done()


def test_its_plugin_module_loads_neither_torch_nor_the_kernels():
    code = (
        "import sys, deepinfer_cpu.plugin; print([m for m in ('torch', 'deepinfer_cpu.kernels') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_its_kernels_use_the_threads_it_was_given():
    from deepinfer_cpu import _kernels

    for threads in (1, 2):
        CpuBackend(threads).open(0).kernels()
        assert _kernels.threads() == threads


def test_kernels_that_are_not_built_are_a_clear_error(device, monkeypatch):
    monkeypatch.setitem(sys.modules, "deepinfer_cpu._kernels", None)
    with pytest.raises(PluginError, match=r"build them with build\.sh"):
        device.kernels()
