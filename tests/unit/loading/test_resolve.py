import sys
from pathlib import Path

import pytest

from deepinfer_core.api.errors import ConfigError, PluginError
from deepinfer_core.loading.resolve import resolve_model
from deepinfer_core.plugin.registry import Registry


@pytest.fixture
def registry(tmp_path):
    registry = Registry()
    folder = tmp_path / "from_source"
    folder.mkdir()
    registry.model_sources.registrar("demo_model")("demo", lambda: folder)
    return registry


def test_a_source_gives_its_folder(registry, tmp_path):
    assert resolve_model("demo", registry) == tmp_path / "from_source"


def test_a_folder_is_itself_absolute_and_relative(registry, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in (str(tmp_path / "mine"), "mine", "./mine"):
        assert resolve_model(name, registry) == tmp_path / "mine"


def test_a_source_comes_before_a_folder_of_its_name(registry, tmp_path, monkeypatch):
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_model("demo", registry) == tmp_path / "from_source"
    assert resolve_model("./demo", registry) == tmp_path / "demo"


def test_a_file_is_not_a_model(registry, tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ConfigError, match="is a file: give the folder"):
        resolve_model(str(tmp_path / "model.safetensors"), registry)


@pytest.mark.parametrize("name", ["a" * 5000, "a/" + "b" * 5000, "~nobody-here/model", "a\0b", "a\ud83d", " "])
def test_no_name_is_more_than_a_wrong_name(registry, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="model"):
        resolve_model(name, registry)


def test_an_unknown_name_says_the_nearest_and_what_failed(registry):
    registry.failures.append("plugin 'zoo' failed to load: no animals")
    with pytest.raises(ConfigError, match=r"'demmo'.*did you mean 'demo'\?; model sources: demo; plugin 'zoo'"):
        resolve_model("demmo", registry)


@pytest.mark.parametrize("folder", [Path("/no/such/folder"), None, 3])
def test_a_source_that_gives_no_folder_is_the_plugins_fault(registry, folder):
    registry.model_sources.registrar("zoo")("lion", lambda: folder)
    with pytest.raises(PluginError, match="model source 'lion' of plugin 'zoo' gave"):
        resolve_model("lion", registry)


def test_a_hub_name_is_looked_up_in_the_local_cache_alone(registry, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    asked = []
    monkeypatch.setattr(hub, "snapshot_download", lambda name, **options: asked.append((name, options)) or tmp_path)
    assert resolve_model("someone/some-model", registry) == tmp_path
    assert asked == [("someone/some-model", {"local_files_only": True})]


def test_a_hub_name_that_is_not_there_says_how_to_get_it(registry, tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match="hf download someone/absent"):
        resolve_model("someone/absent", registry)


@pytest.mark.parametrize("name", ["a--b/c", "a..b/c", "-a/b", "a/b.git", "a/" + "b" * 200])
def test_what_no_hub_takes_is_a_wrong_name(registry, name):
    pytest.importorskip("huggingface_hub")
    with pytest.raises(ConfigError, match="there is no model .* it is no hub name either"):
        resolve_model(name, registry)


def test_without_the_hub_client_a_hub_name_is_an_error_that_says_so(registry, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="needs the package huggingface_hub"):
        resolve_model("someone/some-model", registry)
