"""Options that commands share."""

from argparse import ArgumentParser

import pytest

from deepinfer_core.api.config import EngineConfig
from deepinfer_core.api.errors import ConfigError
from deepinfer_core.cli.options import add_engine_options, add_sampling_options, engine_config, sampling_values


def parse(*words):
    parser = ArgumentParser()
    add_engine_options(parser)
    add_sampling_options(parser)
    return parser.parse_args([str(word) for word in words])


def test_nothing_given_is_the_default():
    assert engine_config(parse()) == EngineConfig()
    assert sampling_values(parse()) == {}


def test_options_by_name():
    given = engine_config(parse("-m", "folder", "--max-running", 3, "--dtype", "float32", "--strict"))
    assert given == EngineConfig(model="folder", max_running=3, dtype="float32", strict=True)


def test_any_option():
    given = engine_config(parse("--set", "overlap=false", "--set", "cache_memory=0.5", "--set", "max-length=9"))
    assert given == EngineConfig(overlap=False, cache_memory=0.5, max_length=9)


def test_a_plugins_scheduler_is_an_option():
    assert engine_config(parse("--set", "scheduler=mine")).scheduler == "mine"


def test_a_value_that_is_no_toml_is_text():
    assert engine_config(parse("--set", "model=some/folder")).model == "some/folder"
    assert engine_config(parse("--set", "model=a\nb = 1")).model == "a\nb = 1"


def test_what_is_nearer_wins(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('model = "file"\nmax_running = 1\nseed = 1\n')
    given = engine_config(parse("--config", file, "--set", "max_running=2", "--set", "model=set", "-m", "option"))
    assert given == EngineConfig(model="option", max_running=2, seed=1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "max_runing=1"], "did you mean 'max_running'.*; options: activation_quant, "),
        (["--set", "nonsense=1"], "unknown engine option 'nonsense'; options: activation_quant, "),
        (["--set", f"max_running=1{'0' * 5000}"], "max_running = '1000"),
        (["-m", ""], "model is empty"),
        (["--backend", ""], "backend is empty"),
        (["--set", "overlap=no"], "overlap = 'no' is not allowed: give true or false"),
        (["--set", "seed=2020-01-01"], "seed = "),
        (["--set", "overlap"], "write NAME=VALUE"),
        (["--set", "=1"], "write NAME=VALUE"),
        (["--max-running", 0], "max_running = 0"),
        (["--config", "nowhere.toml"], "nowhere.toml cannot be read"),
    ],
)
def test_a_wrong_engine_option(words, said):
    with pytest.raises(ConfigError, match=said):
        engine_config(parse(*words))


@pytest.mark.parametrize("content", [b"model", b"\xff"])
def test_a_settings_file_that_is_no_toml(tmp_path, content):
    file = tmp_path / "settings.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="settings.toml is not TOML"):
        engine_config(parse("--config", file))


def test_sampling_options():
    given = sampling_values(parse("-n", 2, "--stop", "a", "--stop", "b", "--param", "bad_words=['x']", "--top-k", 4))
    assert given == {"n": 2, "stop": ["a", "b"], "bad_words": ["x"], "top_k": 4}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--temperature", "nan"], "temperature = nan"),
        (["--param", "temprature=1"], "did you mean 'temperature'"),
        (["--top-p", 2], "top_p = 2.0"),
        (["--top-p", "2e308"], "top_p = inf"),
        (["--param", f"temperature=1{'0' * 400}"], "temperature = 1000"),
        (["--param", f"n=1{'0' * 5000}"], "n = '1000"),
        (["--param", "stop=['']"], "an entry of stop = ''"),
    ],
)
def test_a_wrong_sampling_option_is_wrong_usage(words, said):
    with pytest.raises(ConfigError, match=said):
        sampling_values(parse(*words))
