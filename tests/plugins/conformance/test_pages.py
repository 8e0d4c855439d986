"""The pages of docs/conformance say what there is: a page an area, every option, and code that runs."""

import re
from pathlib import Path

import pytest

from deepinfer_conformance import inventory
from deepinfer_conformance.options import FLAGS
from deepinfer_conformance.waivers import read_waivers

PAGES = Path(__file__).parents[3] / "docs" / "conformance"
README = (PAGES / "README.md").read_text()
AREAS = sorted(name.removeprefix("test_").removesuffix(".py") for name in inventory.present())


@pytest.mark.parametrize("area", AREAS)
def test_every_area_has_a_page_with_three_parts(area):
    page = (PAGES / f"{area}.md").read_text()
    assert page.startswith(f"# {area}\n")
    assert f"[{area}]({area}.md)" in README
    for part in ("**What is", "**Why", "**How to debug"):
        assert part in page, f"{area}.md has no {part}...**"


@pytest.mark.parametrize("flag", FLAGS)
def test_every_option_is_named(flag):
    assert f"| `{flag}" in README


def test_links_lead_somewhere():
    for page in PAGES.glob("*.md"):
        for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_tests_that_a_page_names_exist():
    known = {test for file in inventory.present().values() for test in file.tests}
    for page in PAGES.glob("*.md"):
        for name in re.findall(r"`(?:test_\w+\.py::)?(test_\w+)[`\[]", page.read_text()):
            assert name in known, f"{page.name} names {name}"


def test_the_waiver_shown_can_be_read(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "waivers.toml").write_text(text)
    (waiver,) = read_waivers(tmp_path / "waivers.toml")
    assert waiver.matches("test_ops.py::test_an_op_agrees_with_its_reference[experts-float32]")


def test_the_code_for_debugging_an_op_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (PAGES / "ops.md").read_text(), re.DOTALL)
    scope = {}
    exec(code, scope)
    scope["subject"].close()
    assert "tensor(" in capsys.readouterr().out
