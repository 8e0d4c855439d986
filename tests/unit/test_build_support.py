"""What build.sh asks of Python. The module lies outside the packages and is loaded by its path."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "build_support.py"


@pytest.fixture
def support(tmp_path, monkeypatch):
    """The module, for a tree with one package under tmp_path and a prefix of its own."""
    spec = importlib.util.spec_from_file_location("build_support", TOOL)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.syspath_prepend(str(TOOL.parents[1]))
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "build_record", lambda: tmp_path / "prefix" / "build.json")
    package = tmp_path / "package"
    (package / "csrc").mkdir(parents=True)
    (package / "csrc" / "kernel.cpp").write_text("int one;")
    dependencies = ["deepinfer-core==0.1.0", "numpy>=1.0", "no-such-package>=2"]
    (package / "pyproject.toml").write_text(f'[project]\nname = "some-package"\ndependencies = {dependencies}\n')
    return module


def test_our_own_packages_are_no_dependencies(support, capsys):
    assert support.dependencies(["package"]) == 0
    assert capsys.readouterr().out.split() == ["no-such-package>=2", "numpy>=1.0"]


def test_what_is_missing_is_named_once(support, capsys):
    assert support.missing(["package"]) == 1
    assert capsys.readouterr().out == "no-such-package>=2 is not installed\n"


def test_an_optional_package_is_only_a_warning(support, capsys, monkeypatch):
    monkeypatch.setattr(support, "OPTIONAL", {"no-such-package": "nothing works"})
    assert support.missing(["package"]) == 0
    assert "warning: no-such-package>=2 is not installed: nothing works" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("floor", "found", "good"),
    [("2.11", "2.11.0+cu130", True), ("2.11", "2.9.1", False), ("0.20", "0.23.2", True), ("1.26", "2.5", True)],
)
def test_versions_are_compared_by_number(support, monkeypatch, floor, found, good):
    monkeypatch.setattr(support, "version", lambda name: found)
    assert (support._fault(f"torch>={floor}") is None) == good


def test_a_package_is_stale_until_it_is_stamped_and_again_when_its_sources_change(
    support, tmp_path, capsys, monkeypatch
):
    def stale():
        support.stale(["package"])
        return capsys.readouterr().out.split()

    assert stale() == ["package"]
    monkeypatch.setattr(support, "_installed_here", lambda folder: True)
    assert stale() == ["package"]
    support.stamp(["package"])
    assert stale() == []
    (tmp_path / "package" / "csrc" / "kernel.cpp").write_text("int two;")
    assert stale() == ["package"]


def test_what_is_installed_from_elsewhere_is_stale(support):
    assert not support._installed_here("package")


def test_a_record_that_cannot_be_written_is_said(support, tmp_path, capsys):
    (tmp_path / "prefix").write_text("a file where the folder should be")
    assert support.record(["cpu"]) == 0
    assert "cannot be written" in capsys.readouterr().out
