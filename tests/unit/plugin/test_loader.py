import logging

import pytest

from deepinfer_core.api.errors import PluginError
from deepinfer_core.plugin.loader import load_plugins

GOOD = """
@hookimpl
def deepinfer_observers(register):
    register("watcher", object)
"""

BROKEN = {
    "import": ("import no_such_library", "No module named 'no_such_library'"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "misspelt": ("@hookimpl\ndef deepinfer_observer(register): pass", "did you mean 'deepinfer_observers'"),
    "unmarked": ("def deepinfer_observers(register): pass", "put @hookimpl above it"),
    "foreign": ("@hookimpl\ndef observers(register): pass", "unknown hook 'observers'"),
    "argument": ("@hookimpl\ndef deepinfer_observers(registry): pass", "registry"),
    "raises": ("@hookimpl\ndef deepinfer_observers(register): raise OSError('no\\n driver')", "OSError: no driver"),
    "factory": ("@hookimpl\ndef deepinfer_observers(register): register('a', 3)", "function without arguments"),
    "no version": ("del built_for", "built_for = 1"),
    "newer": ("built_for = minimum = 99", "update deepinfer-core"),
    "older": ("built_for = 0", "built_for is 0"),
}


def test_a_good_plugin_loads_and_says_what_it_provides(site):
    site.install("good", GOOD)
    plugins = site.load()
    (outcome,) = plugins.outcomes
    assert (outcome.plugin, outcome.distribution, outcome.version) == ("good", "dist-good", "1.0")
    assert (outcome.status, outcome.provides, outcome.built_for) == ("loaded", ("observer watcher",), 1)
    assert plugins.registry.observers.plugin_of("watcher") == "good"
    assert not plugins.problems


@pytest.mark.parametrize(("code", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_plugin_is_one_warning_and_harms_no_other(site, caplog, code, reason):
    site.install("broken", code)
    site.install("good", GOOD)
    with caplog.at_level(logging.WARNING):
        plugins = site.load()
    assert [outcome.status for outcome in plugins.outcomes] == ["failed", "loaded"]
    assert list(plugins.registry.observers) == ["watcher"]
    (record,) = caplog.records
    assert "plugin 'broken' (dist-broken 1.0) failed to load" in record.getMessage()
    assert reason in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize(("code", "reason"), BROKEN.values(), ids=BROKEN)
def test_under_strictness_a_broken_plugin_stops_the_program(site, environment, code, reason):
    site.install("broken", code)
    with pytest.raises(PluginError) as caught:
        site.load(environment(DEEPINFER_PLUGINS_STRICT="1"))
    assert reason in str(caught.value)


def test_a_plugin_that_fails_half_way_leaves_nothing(site):
    site.install(
        "half",
        """
        @hookimpl
        def deepinfer_backends(register):
            register("chip", object)

        @hookimpl
        def deepinfer_observers(register):
            register("watcher", object)
            raise RuntimeError("too late")
        """,
    )
    registry = site.load().registry
    assert registry.provided_by("half") == ()
    assert "chip" not in registry.backends
    with pytest.raises(PluginError, match="plugin 'half' .* failed to load: RuntimeError: too late"):
        registry.backends["chip"]


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_two_plugins_with_one_name_stop_the_program_in_either_order(site, order):
    for plugin in order:
        site.install(plugin, GOOD)
    with pytest.raises(PluginError, match=r"observer 'watcher' is claimed by the plugins 'a', 'b'.*DISABLE=b"):
        site.load()


def test_a_conflict_ends_when_one_is_disabled(site, environment):
    site.install("a", GOOD)
    site.install("b", GOOD)
    plugins = site.load(environment(DEEPINFER_PLUGINS_DISABLE="b", DEEPINFER_PLUGINS_STRICT="1"))
    assert plugins.registry.observers.plugin_of("watcher") == "a"
    assert [outcome.status for outcome in plugins.outcomes] == ["loaded", "disabled"]


def test_a_disabled_plugin_is_not_even_imported(site, environment):
    site.install("broken", "raise SystemExit")
    (outcome,) = site.load(environment(DEEPINFER_PLUGINS_DISABLE="broken", DEEPINFER_PLUGINS_STRICT="1")).outcomes
    assert outcome.status == "disabled"


def test_two_distributions_with_one_plugin_name_are_told_apart_by_distribution(site, environment):
    site.install("chip", GOOD, distribution="maker-one")
    site.install("chip", GOOD, distribution="maker-two")
    plugins = site.load(stop=False)
    assert [outcome.status for outcome in plugins.outcomes] == ["failed", "failed"]
    assert "'maker-one', 'maker-two'" in plugins.problems[0]
    with pytest.raises(PluginError, match="maker-one"):
        site.load()
    one = site.load(environment(DEEPINFER_PLUGINS_DISABLE="maker-two"))
    assert list(one.registry.observers) == ["watcher"]


def test_a_disabled_name_that_is_not_installed_is_said(site, environment, caplog):
    site.install("good", GOOD)
    site.load(environment(DEEPINFER_PLUGINS_DISABLE="goood"))
    assert "names 'goood', which is not an installed plugin; did you mean 'good'?" in caplog.text


def test_looking_without_stopping_reports_everything_and_logs_nothing(site, environment, caplog):
    site.install("a", GOOD)
    site.install("b", GOOD)
    site.install("broken", "import no_such_library")
    plugins = site.load(environment(DEEPINFER_PLUGINS_STRICT="1"), stop=False)
    assert len(plugins.problems) == 2
    assert "no_such_library" in plugins.outcomes[2].traceback
    assert not caplog.records


def test_reports_are_gathered_and_a_failing_one_is_an_entry(site):
    site.install("good", "@hookimpl\ndef deepinfer_report(): return {'driver': 12}")
    site.install("bad", "@hookimpl\ndef deepinfer_report(): raise OSError('gone')")
    site.install("silent", GOOD)
    assert site.load().reports() == {"bad": {"error": "OSError: gone"}, "good": {"driver": "12"}}


def test_an_older_style_hook_may_take_fewer_arguments(site):
    site.install("idle", "@hookimpl\ndef deepinfer_observers(): pass")
    assert site.load().outcomes[0].status == "loaded"


def test_installed_distributions_are_found_by_the_entry_point_group(site, environment):
    site.install("good", GOOD)
    plugins = load_plugins(environment())
    assert "good" in [outcome.plugin for outcome in plugins.outcomes]


@pytest.mark.parametrize("hook", ["drafters", "executors"])
def test_what_this_release_does_not_use_yet_is_said(site, hook):
    site.install("early", f"@hookimpl\ndef deepinfer_{hook}(register): register('mine', object)")
    (problem,) = site.load().problems
    assert "plugin 'early' registers the" in problem
    assert "does not use" in problem
