import json
from argparse import ArgumentParser

import pytest
import torch

from deepinfer_core.api.errors import DeviceError
from deepinfer_core.cli import diagnosis, doctor, plugins
from deepinfer_core.interfaces.backend import Capabilities, Probe
from deepinfer_core.plugin.loader import Outcome, Plugins
from deepinfer_core.plugin.registry import Registry


class Immediate:
    """A queue that runs at once."""

    def submit(self, fn):
        value = fn()
        return type("Done", (), {"wait": lambda self: value})()


class FakeDevice:
    torch_device = torch.device("cpu")

    def __init__(self, kernels):
        self._kernels = kernels
        self.closed = False

    def memory(self):
        return 1 << 30, 4 << 30

    def kernels(self):
        return self._kernels

    def queue(self):
        return Immediate()

    def close(self):
        self.closed = True


class FakeBackend:
    name = "chip"
    interface = 1

    def __init__(self, kernels=None, available=True, error=None):
        self.device = FakeDevice(kernels or {})
        self.available = available
        self.error = error

    def probe(self):
        return Probe(self.available, "one chip" if self.available else "no chip")

    def capabilities(self):
        return Capabilities()

    def open(self, index):
        if self.error:
            raise self.error
        return self.device


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run the command among one backend and these outcomes; returns (exit code, what it printed)."""

    def run(command, *arguments, backend=None, outcomes=(), problems=()):
        registry = Registry()
        if backend is not None:
            registry.backends.registrar("maker")("chip", lambda: backend)
        registry.failures.extend(problems)
        loaded = Plugins(registry, tuple(outcomes), tuple(problems), {})
        for module in (diagnosis, plugins):
            monkeypatch.setattr(module, "load_plugins", lambda environment, stop: loaded)
        monkeypatch.setattr(diagnosis, "CHECKED_OPS", ("rms_norm",))
        monkeypatch.setattr(diagnosis, "build_record", lambda: tmp_path / "build.json")
        parser = ArgumentParser()
        command.configure(parser)
        code = command.run(parser.parse_args(arguments))
        return code, capsys.readouterr().out

    return run


def wrong_rms_norm(x, weight, eps):
    return x * 1.01


def test_a_working_device_is_ready(run):
    backend = FakeBackend()
    code, text = run(doctor, backend=backend)
    assert code == 0
    assert text.endswith("ready\n")
    assert "chip: available; one chip" in text
    assert "memory: 1.0 of 4.0 GiB free" in text
    assert backend.device.closed


def test_json_holds_the_same(run):
    code, text = run(doctor, "--json", backend=FakeBackend())
    facts = json.loads(text)
    assert (code, facts["ok"], facts["chosen"]["backend"]) == (0, True, "chip")
    assert facts["check"]["rms_norm"] > 0
    assert "rms_norm" in facts["device"]["fallbacks"]


def test_wrong_numbers_are_found_and_named(run):
    code, text = run(doctor, backend=FakeBackend({"rms_norm": wrong_rms_norm}))
    assert code == 3
    assert "error: op rms_norm gives wrong numbers on this device" in text


def test_strict_counts_a_fallback_as_an_error(run):
    code, text = run(doctor, "--strict", backend=FakeBackend())
    assert code == 2
    assert "error: these ops run on their reference implementation: rms_norm" in text


@pytest.mark.parametrize(
    ("backend", "code", "message"),
    [
        (None, 2, "no backend can run here"),
        (FakeBackend(available=False), 2, "no chip"),
        (FakeBackend(error=DeviceError("the driver hangs")), 3, "the driver hangs"),
        (FakeBackend(error=OSError("no driver")), 2, "opening device 0 of backend chip failed: OSError: no driver"),
        (FakeBackend({"no_such_op": wrong_rms_norm}), 2, "'no_such_op' is not an op"),
    ],
)
def test_what_cannot_work_is_an_error_and_the_rest_is_still_shown(run, backend, code, message):
    ended, text = run(doctor, backend=backend)
    assert ended == code
    assert message in "".join(line for line in text.splitlines() if line.startswith("error: "))
    assert "torch" in text


def test_another_backend_can_be_asked_for(run):
    code, text = run(doctor, "--backend", "chap", backend=FakeBackend())
    assert code == 2
    assert "did you mean 'chip'?" in text


@pytest.mark.parametrize(("strict", "code", "level"), [("0", 0, "warning"), ("1", 2, "error")])
def test_a_failed_plugin_is_a_warning_unless_plugins_are_strict(run, monkeypatch, strict, code, level):
    monkeypatch.setenv("DEEPINFER_PLUGINS_STRICT", strict)
    ended, text = run(doctor, backend=FakeBackend(), problems=["plugin 'zoo' failed to load: no animals"])
    assert ended == code
    assert f"{level}: plugin 'zoo' failed to load: no animals" in text


def test_an_unknown_variable_is_said(run, monkeypatch):
    monkeypatch.setenv("DEEPINFER_BACKED", "chip")
    code, text = run(doctor, backend=FakeBackend())
    assert code == 0
    assert "DEEPINFER_BACKED is not one of ours; did you mean 'DEEPINFER_BACKEND'?" in text


def test_a_variable_that_cannot_be_read_is_an_error(run, monkeypatch):
    monkeypatch.setenv("DEEPINFER_THREADS", "many")
    code, text = run(doctor, backend=FakeBackend())
    assert code == 2
    assert "DEEPINFER_THREADS = 'many'" in text


def test_plugins_lists_each_with_what_it_provides_or_why_not(run):
    outcomes = [
        Outcome("cpu", "deepinfer-backend-cpu", "1.0", "loaded", provides=("backend cpu",)),
        Outcome("zoo", "animals", "2.0", "failed", "ImportError: no animals", traceback="Traceback: here\n"),
    ]
    code, text = run(plugins, outcomes=outcomes, problems=["plugin 'zoo' failed to load"])
    assert code == 0
    assert text.splitlines() == [
        "cpu  deepinfer-backend-cpu 1.0  loaded    backend cpu",
        "zoo  animals 2.0                failed    ImportError: no animals",
        "warning: plugin 'zoo' failed to load",
    ]
    assert "Traceback: here" in run(plugins, "--traceback", outcomes=outcomes)[1]


def test_plugins_as_json(run):
    code, text = run(plugins, "--json", outcomes=[Outcome("zoo", "animals", "2.0", "failed", "no animals")])
    assert code == 0
    assert json.loads(text)["plugins"][0]["reason"] == "no animals"


def test_no_plugins_is_said(run):
    assert run(plugins) == (0, "no plugins are installed\n")
