"""Opening the backend under test: whatever keeps it from being opened is `Unavailable`, with the reason."""

from types import SimpleNamespace

import pytest

from deepinfer_conformance import subject as subjects
from deepinfer_conformance.subject import Unavailable, open_subject
from deepinfer_core.api.errors import ConfigError
from deepinfer_core.interfaces.backend import Probe
from deepinfer_cpu.backend import CpuBackend


class Odd(CpuBackend):
    """The CPU backend with something in its place."""

    name = "odd"

    def __init__(self, interface=1, probe=None, kernels=None, error=None):
        super().__init__(1)
        self.interface = interface
        self._probe, self._kernels, self._error = probe, kernels, error
        self.opened = []

    def probe(self):
        return self._probe or super().probe()

    def open(self, index):
        if self._error:
            raise self._error
        device = super().open(index)
        if self._kernels is not None:
            device.kernels = lambda: self._kernels
        close = device.close
        device.close = lambda: (close(), self.opened.remove(device))
        self.opened.append(device)
        return device


@pytest.fixture
def registered(monkeypatch):
    """Makes `odd` a backend that a plugin registers."""
    load = subjects.load_plugins

    def register(backend):
        def load_with_odd(environment, **options):
            plugins = load(environment, **options)
            plugins.registry.backends.registrar("odd")("odd", lambda: backend)
            return plugins

        monkeypatch.setattr(subjects, "load_plugins", load_with_odd)
        return backend

    return register


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"probe": Probe(False, "no driver is loaded")}, "cannot run here: no driver is loaded"),
        ({"interface": 0}, "which is not an interface version"),
        ({"error": OSError("the bus is down")}, "could not be opened: OSError: the bus is down"),
        ({"error": ConfigError("device 0 is taken")}, "device 0 is taken"),
        ({"kernels": {"rms_nrm": max}}, "did you mean 'rms_norm'?"),
        ({"kernels": {"rms_norm": lambda x: x}}, "kernel 'rms_norm' has parameters"),
    ],
)
def test_what_cannot_be_opened_is_unavailable(registered, settings, said):
    backend = registered(Odd(**settings))
    with pytest.raises(Unavailable, match=said) as caught:
        open_subject("odd")
    assert caught.value.exit_code == 3
    assert not backend.opened, "what was opened before the fault was found is closed again"


def test_an_open_backend_is_the_one_that_was_asked_for(registered):
    backend = registered(Odd())
    subject = open_subject("odd")
    assert (subject.name, subject.backend, subject.fallbacks) == ("odd", backend, ())
    assert subject.run(lambda: 3) == 3
    subject.close()
    assert not backend.opened


def test_a_backend_without_kernels_runs_on_references(registered):
    registered(Odd(kernels={}))
    subject = open_subject("odd")
    assert "sparse_attention" in subject.fallbacks
    subject.close()


def test_a_run_on_an_unavailable_backend_ends_with_3(suite, registered):
    registered(Odd(probe=Probe(False, "no driver is loaded")))
    ran = suite("def test_a():\n    pass\n", backend="odd")
    assert (ran.code, ran.card) == (3, None)
    assert "no driver is loaded" in ran.text


def test_a_backend_is_closed_when_the_run_ends(suite, registered):
    backend = registered(Odd())
    assert suite("def test_a(subject):\n    assert subject.backend.opened\n", backend="odd").code == 0
    assert not backend.opened


def test_an_unknown_mutant_is_unavailable(monkeypatch):
    import deepinfer_conformance.mutants as mutants

    known = {"plain": SimpleNamespace(make=CpuBackend)}
    monkeypatch.setattr(mutants, "MUTANTS", known, raising=False)
    with pytest.raises(Unavailable, match="there is no mutant 'plane'; did you mean 'plain'?"):
        open_subject("mutant:plane")
    subject = open_subject("mutant:plain")
    assert subject.name == "mutant:plain"
    subject.close()
