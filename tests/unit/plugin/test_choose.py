import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.errors import ConfigError, DeviceError, PluginError
from deepinfer_core.interfaces.backend import Capabilities, Probe
from deepinfer_core.plugin.choose import choose_backend
from deepinfer_core.plugin.registry import Registry


@dataclass
class FakeBackend:
    name: str
    available: bool = True
    accelerator: bool = True
    interface: int = 1
    probes: list[str] = field(default_factory=list)

    def probe(self):
        self.probes.append(self.name)
        return Probe(self.available, f"{self.name} is {'here' if self.available else 'absent'}")

    def capabilities(self):
        return Capabilities(accelerator=self.accelerator)


def registry_of(*backends):
    registry = Registry()
    for backend in backends:
        registry.backends.registrar(f"plugin-{backend.name}")(backend.name, lambda backend=backend: backend)
    return registry


HOST = FakeBackend("host", accelerator=False)


@pytest.fixture
def record(tmp_path):
    return tmp_path / "build.json"


@pytest.fixture
def choose(environment, record):
    def choose(*backends, requested=None, variable=None):
        variables = {"DEEPINFER_BACKEND": variable} if variable else {}
        return choose_backend(registry_of(*backends), requested, environment(**variables), record)

    return choose


def test_the_only_accelerator_is_chosen_and_said(choose):
    choice = choose(HOST, FakeBackend("red"))
    assert choice.backend.name == "red"
    assert choice.lines == ("backend red: the only accelerator that can run here; red is here",)


def test_without_an_accelerator_the_host_runs_and_a_line_says_why(choose):
    choice = choose(HOST, FakeBackend("red", available=False))
    assert choice.backend is HOST
    assert choice.lines == (
        "backend host: no accelerator can run here; host is here",
        "backend red is not used: red is absent",
    )


def test_two_accelerators_and_no_choice_are_an_error_that_lists_them(choose):
    with pytest.raises(PluginError, match=r"2 accelerators can run.*blue is here; red: red is here.*--backend"):
        choose(HOST, FakeBackend("red"), FakeBackend("blue"))


def test_no_backend_at_all_says_what_is_wrong_with_each(choose):
    with pytest.raises(PluginError, match="no backend can run here: backend red is not used: red is absent"):
        choose(FakeBackend("red", available=False))


@pytest.mark.parametrize("how", ["requested", "variable", "record"])
def test_what_was_asked_for_is_never_replaced(choose, record, how):
    red = FakeBackend("red", available=False)
    if how == "record":
        record.write_text(json.dumps({"backend": "red"}))
    with pytest.raises(PluginError, match="'red' was .* and cannot run here: red is absent"):
        choose(HOST, red, FakeBackend("blue"), **({} if how == "record" else {how: "red"}))


def test_the_request_comes_before_the_variable_and_that_before_the_record(choose, record):
    backends = (HOST, FakeBackend("red"), FakeBackend("blue"))
    record.write_text(json.dumps({"backend": "host"}))
    assert choose(*backends, requested="red", variable="blue").backend.name == "red"
    assert choose(*backends, variable="blue").backend.name == "blue"
    assert choose(*backends).backend.name == "host"


def test_an_empty_name_is_a_name_that_nobody_has(choose):
    with pytest.raises(PluginError, match="no plugin registers the backend ''; registered: host"):
        choose(HOST, requested="")


def test_asking_by_name_touches_no_other_backend(choose):
    other = FakeBackend("blue")
    choose(HOST, FakeBackend("red"), other, requested="red")
    assert other.probes == []


def test_a_recorded_host_says_which_accelerator_lies_idle(choose, record):
    record.write_text(json.dumps({"backend": "host"}))
    choice = choose(HOST, FakeBackend("red"))
    assert choice.backend is HOST
    assert choice.lines[1:] == ("accelerator red could run here and is not used: choose it with --backend red",)


def test_an_unknown_name_lists_what_there_is(choose):
    with pytest.raises(PluginError, match=r"no plugin registers the backend 'rod'; did you mean 'red'\?"):
        choose(HOST, FakeBackend("red"), requested="rod")


def test_a_backend_for_another_interface_cannot_be_chosen(choose):
    with pytest.raises(PluginError, match="update deepinfer-core|update the plugin|not an interface version"):
        choose(FakeBackend("red", interface=0), requested="red")


@pytest.mark.parametrize("error", [OSError("driver gone"), DeviceError("driver gone")])
def test_a_probe_that_raises_counts_as_absent_with_its_reason(choose, error):
    class Broken(FakeBackend):
        def probe(self):
            raise error

    assert choose(HOST, Broken("red")).lines[1].endswith("driver gone")
    with pytest.raises(PluginError, match="driver gone"):
        choose(HOST, Broken("red"), requested="red")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"other": 1}', '{"backend": 3}', '{"backend": ""}'])
def test_a_record_that_cannot_be_used_is_an_error(choose, record, text):
    record.write_text(text)
    with pytest.raises(ConfigError, match="run build.sh again or delete it"):
        choose(HOST)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=5))
def test_the_automatic_choice_is_the_one_possible_or_an_error(tmp_path_factory, kinds):
    backends = [FakeBackend(f"chip{i}", available, accelerator) for i, (available, accelerator) in enumerate(kinds)]
    able = [one for one in backends if one.available]
    pool = [one for one in able if one.accelerator] or able
    from deepinfer_core.api.config import read_environment

    arguments = (registry_of(*backends), None, read_environment({}), tmp_path_factory.getbasetemp() / "absent.json")
    if len(pool) == 1:
        assert choose_backend(*arguments).backend is pool[0]
    else:
        with pytest.raises(PluginError):
            choose_backend(*arguments)
