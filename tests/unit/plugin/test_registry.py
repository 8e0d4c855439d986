import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.errors import ConfigError, PluginError
from deepinfer_core.plugin import hookspecs
from deepinfer_core.plugin.registry import Registry, Table

names = st.sampled_from(["a", "b", "c"])


def test_every_registering_hook_fills_a_table():
    hooks = {name for name in vars(hookspecs) if name.startswith("deepinfer_")}
    assert set(Registry().by_hook) == hooks - {"deepinfer_report"}


@given(st.lists(st.tuples(names, names), unique=True))
def test_what_a_name_means_does_not_depend_on_the_order_of_plugins(claims):
    def outcome(ordered):
        table = Table("thing", [])
        for plugin, name in ordered:
            table.registrar(plugin)(name, lambda plugin=plugin: plugin)
        return {name: ask(table, name) for name in table}

    def ask(table, name):
        try:
            return table[name]
        except PluginError as error:
            return str(error)

    assert outcome(claims) == outcome(claims[::-1])


@given(st.lists(st.tuples(names, names), unique=True), names)
def test_withdrawing_a_plugin_leaves_no_trace_of_it(claims, gone):
    table, without = Table("thing", []), Table("thing", [])
    for plugin, name in claims:
        table.registrar(plugin)(name, object)
        if plugin != gone:
            without.registrar(plugin)(name, object)
    table.withdraw(gone)
    assert list(table) == list(without)
    assert table.conflicts() == without.conflicts()


def test_a_name_with_two_plugins_names_both_and_the_way_out():
    table = Table("backend", [])
    for plugin in ("red", "blue"):
        table.registrar(plugin)("chip", object)
    with pytest.raises(PluginError, match=r"'chip' is claimed by the plugins 'blue', 'red'.*PLUGINS_DISABLE=red"):
        table["chip"]


def test_a_factory_runs_once_and_only_when_asked():
    made = []
    table = Table("thing", [])
    table.registrar("p")("a", lambda: made.append(1) or object())
    assert not made
    assert table["a"] is table["a"]
    assert made == [1]


def test_a_missing_name_says_the_nearest_what_there_is_and_what_failed():
    table = Table("drafter", ["plugin 'x' failed to load: no such library"])
    table.registrar("p")("dspark", object)
    with pytest.raises(PluginError, match=r"'dspork'; did you mean 'dspark'\?; registered: dspark; plugin 'x' failed"):
        table["dspork"]


def test_a_name_of_the_cores_own_is_listed_and_not_for_plugins():
    table = Table("scheduler", [], own=("native",))
    with pytest.raises(PluginError, match="scheduler 'native' is the core's own"):
        table.registrar("p")("native", object)
    with pytest.raises(PluginError, match=r"'nativ'; did you mean 'native'\?; registered: native"):
        table["nativ"]


def test_a_failing_factory_is_the_plugins_fault_by_name():
    table = Table("drafter", [])
    table.registrar("p")("a", lambda: 1 / 0)
    with pytest.raises(PluginError, match="drafter 'a' of plugin 'p' could not be made: ZeroDivisionError"):
        table["a"]


def test_a_factorys_own_typed_error_comes_through():
    def factory():
        raise ConfigError("no such folder")

    table = Table("model source", [])
    table.registrar("p")("a", factory)
    with pytest.raises(ConfigError, match="no such folder"):
        table["a"]


@pytest.mark.parametrize(("name", "factory"), [("", object), (" a", object), (3, object), ("a", None), ("a", "text")])
def test_what_cannot_be_registered_is_refused(name, factory):
    with pytest.raises(PluginError, match="thing"):
        Table("thing", []).registrar("p")(name, factory)


def test_a_plugin_may_not_register_a_name_twice():
    register = Table("thing", []).registrar("p")
    register("a", object)
    with pytest.raises(PluginError, match="twice"):
        register("a", object)
