"""Nobody removes or overrides a standard test unseen."""

import ast
import re

import pytest

from deepinfer_conformance import inventory

TESTS = "def test_a():\n    pass\n\ndef test_b():\n    assert 1 == 2\n"


def test_the_inventory_is_that_of_the_areas_as_they_are():
    """After a change to an area: python -m deepinfer_conformance.inventory"""
    assert inventory.shipped() == inventory.present()


class Hooks:
    """Another plugin, which does something to the tests once they are collected."""

    def __init__(self, change):
        self._change = change

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        self._change(config, items)


def drop(config, items):
    items[:] = [item for item in items if item.name != "test_b"]


def deselect(config, items):
    config.hook.pytest_deselected(items=[item for item in items if item.name == "test_b"])
    drop(config, items)


def override(config, items):
    for item in items:
        item.obj = lambda: None


def test_a_test_that_another_plugin_drops_is_missed(suite):
    ran = suite(TESTS, plugin=Hooks(drop))
    assert (ran.code, ran.card) == (2, None)
    assert "removed after they had been collected: test_made.py::test_b" in ran.text


def test_a_test_that_is_deselected_openly_leaves_no_verdict(suite):
    ran = suite(TESTS, plugin=Hooks(deselect))
    assert ran.card["verdict"].startswith("NO VERDICT")


def test_a_test_that_is_overridden_is_found(suite):
    ran = suite(TESTS, plugin=Hooks(override))
    assert (ran.code, ran.card) == (2, None)
    assert "test_made.py::test_a was overridden" in ran.text


def with_tests(text, tmp_path):
    path = tmp_path / "test_made.py"
    path.write_text(f"import pytest\n\n{text}")
    return {"test_made.py": inventory._read(path)}


@pytest.mark.parametrize(
    ("shipped", "said"),
    [
        (TESTS + "def test_c():\n    pass\n", "test_made.py was changed, without test_c"),
        (TESTS.split("def test_b")[0], "test_made.py was changed, with test_b"),
        (TESTS.replace("1 == 2", "1 == 1"), "test_made.py was changed"),
    ],
)
def test_a_file_that_is_not_as_shipped_is_found(suite, tmp_path, shipped, said):
    ran = suite(TESTS, listed=with_tests(shipped, tmp_path))
    assert (ran.code, ran.card) == (2, None)
    assert said in ran.text


def test_a_file_that_is_missing_is_found(suite, tmp_path):
    listed = with_tests(f"\n{TESTS}", tmp_path)
    listed |= {"test_gone.py": listed["test_made.py"]}
    assert "test_gone.py is missing" in suite(TESTS, listed=listed).text


def test_a_test_that_pytest_was_told_not_to_find_is_missed(suite):
    ran = suite(TESTS, "-o", "python_functions=test_a")
    assert (ran.code, ran.card) == (2, None)
    assert "test_made.py::test_b was not collected" in ran.text


def test_an_area_holds_plain_functions_only():
    """Classes and conditional tests would not be in the inventory."""
    for path in inventory.AREAS.glob("test_*.py"):
        text = path.read_text()
        assert "\nclass Test" not in text
        assert "hypothesis" not in text, "the suite needs pytest, torch and the core alone"


def sources():
    return [path for path in inventory.PACKAGE.rglob("*.py") if "templates" not in path.parts]


def test_the_suite_imports_the_core_and_itself():
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            ours = {name.split(".")[0] for name in names if name.startswith("deepinfer")}
            assert ours <= {"deepinfer_core", "deepinfer_conformance"}, path


def test_no_part_of_the_suite_names_a_kind_of_hardware():
    for path in sources():
        assert not re.search(r"torch\.(cuda|npu|mps|xpu)|device\(['\"](?!cpu)", path.read_text()), path
