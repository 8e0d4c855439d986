import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.plugin import version
from deepinfer_core.plugin.version import refusal


@given(host=st.integers(1, 20), built_for=st.integers(1, 20), minimum=st.integers(1, 20))
def test_a_core_supports_its_own_version_and_the_one_before(host, built_for, minimum):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(version, "INTERFACE", host)
        patch.setattr(version, "OLDEST_BUILT_FOR", max(1, host - 1))
        accepted = refusal(built_for, minimum) is None
    assert accepted == (minimum <= built_for and minimum <= host and built_for >= host - 1)


@pytest.mark.parametrize("value", [None, "1", 1.0, True, 0, -1])
@pytest.mark.parametrize("name", ["built_for", "minimum"])
def test_what_is_no_version_is_refused_by_name(name, value):
    assert name in refusal(**{"built_for": 1, "minimum": 1} | {name: value})


def test_a_plugin_that_needs_a_newer_core_is_told_to_update_the_core():
    assert "update deepinfer-core" in refusal(version.INTERFACE + 1, version.INTERFACE + 1)
