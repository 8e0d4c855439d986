"""EngineConfig and the environment: wrong values are refused by name, and nothing odd counts as set."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from deepinfer_core.api.config import EngineConfig, read_environment
from deepinfer_core.api.errors import ConfigError, shown

HUGE = 10**5000  # Python refuses to write it


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("max_running", value) for value in (0, -1, True, 1.0, "8", None, 2**63, HUGE)),
        *(("max_length", value) for value in (0, False, 1.5, "8", HUGE)),
        *(("device_index", value) for value in (-1, True, None, HUGE)),
        *(("seed", value) for value in (-1, 2**64, HUGE, True, 1.0, "1")),
        *(("cache_memory", value) for value in (0, 1.5, float("nan"), True, None, 10**400)),
        *(("overlap", value) for value in (1, 0, None, "true")),
        *(("dtype", value) for value in ("float16", None, {}, ["float32"])),
        *(("model", value) for value in ("", None, 5)),
        *(("backend", value) for value in ("", 5)),
        *(("scheduler", value) for value in ("", None)),
    ],
    ids=shown,
)
def test_a_wrong_option_is_named_with_what_is_allowed(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{option} (=|is empty).*(give|choose)") as caught:
        EngineConfig(**{option: value})
    assert len(str(caught.value)) < 400


def test_limits_belong_to_what_is_allowed() -> None:
    assert EngineConfig(seed=2**64 - 1, cache_memory=1, max_running=1, backend=None).seed == 2**64 - 1


@pytest.mark.parametrize("name", ["max_runing", 5, None])
def test_an_unknown_option_lists_those_there_are(name: Any) -> None:
    with pytest.raises(ConfigError, match="unknown engine option") as caught:
        EngineConfig.from_dict({name: 1})
    listed = str(caught.value).partition("; options: ")[2].split(", ")
    assert listed == sorted(field.name for field in fields(EngineConfig))


@pytest.mark.parametrize("text", ["1", "true", "TRUE", "Yes", "on", " 1 "])
def test_strictness_is_on(text: str) -> None:
    assert read_environment({"DEEPINFER_PLUGINS_STRICT": text}).plugins_strict


@pytest.mark.parametrize(
    "variables", [{}, *({"DEEPINFER_PLUGINS_STRICT": text} for text in ("", "0", "False", "no", "off"))]
)
def test_strictness_is_off(variables: dict[str, str]) -> None:
    assert not read_environment(variables).plugins_strict


@pytest.mark.parametrize("text", ["maybe", "2", "-1", "tru", "1,0", "١"])
def test_strictness_is_nothing_between(text: str) -> None:
    with pytest.raises(
        ConfigError, match="DEEPINFER_PLUGINS_STRICT = .*choose one of 1, true, yes, on, 0, false, no, off"
    ):
        read_environment({"DEEPINFER_PLUGINS_STRICT": text})


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "1e3", "٣", " 2", "99999999999999", "9" * 5000], ids=shown)
def test_a_number_of_threads_is_a_small_whole_number(text: str) -> None:
    with pytest.raises(ConfigError, match="DEEPINFER_THREADS = .* 1 to 9999"):
        read_environment({"DEEPINFER_THREADS": text})
    assert read_environment({"DEEPINFER_THREADS": "12"}).threads == 12


def test_names_of_disabled_plugins_may_have_spaces_around_them() -> None:
    assert read_environment({"DEEPINFER_PLUGINS_DISABLE": " a, b,,c "}).plugins_disabled == {"a", "b", "c"}


def test_an_unknown_variable_is_told_with_the_nearest_name() -> None:
    (line,) = read_environment({"DEEPINFER_BACKENT": "cpu", "OTHER": "1"}).unread([])
    assert "DEEPINFER_BACKENT" in line
    assert "did you mean 'DEEPINFER_BACKEND'" in line


def test_a_plugin_may_have_variables_of_its_own_name() -> None:
    found = read_environment({"DEEPINFER_MY_CHIP_STREAMS": "2", "DEEPINFER_MYCHIP_STREAMS": "2"})
    (line,) = found.unread(["cpu", "my-chip"])
    assert "DEEPINFER_MYCHIP_STREAMS" in line
    assert len(found.unread([])) == 2
