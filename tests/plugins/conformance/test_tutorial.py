"""The tutorials do what they say: every block of them, in order, in an environment made of wheels."""

from __future__ import annotations

from pathlib import Path

import pytest
from fenced_blocks import Block, missing_lines, read_blocks
from wheel_environment import ROOT, WheelEnvironment, build_wheels, make_environment

from deepinfer_conformance.waivers import read_waivers

PAGES = ("write-a-backend.md", "write-a-plugin.md")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheels(tmp_path_factory.mktemp("built"))


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_does_what_it_says(page: str, wheels: Path, tmp_path: Path) -> None:
    environment = make_environment(tmp_path, wheels)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    output = ""
    for block in read_blocks(ROOT / "docs" / page):
        where = f"docs/{page}:{block.line}"
        if block.command:
            output = run(block, environment, scratch, where)
        elif block.lines:
            missing = missing_lines(block.text, output)
            assert not missing, f"{where} shows what the command did not:\n{missing}\nIt said:\n{output}"
        elif block.file is not None:
            (scratch / block.file).write_text(block.text, encoding="utf-8")
        else:
            (tmp_path / "waivers.toml").write_text(block.text, encoding="utf-8")
            assert read_waivers(tmp_path / "waivers.toml")


def run(block: Block, environment: WheelEnvironment, scratch: Path, where: str) -> str:
    """The block's output. `set -e`, so that each of its commands counts."""
    done = environment.run(f"set -e -o pipefail\n{block.text}", scratch)
    assert done.returncode == block.exit_code, f"{where} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def test_a_wheel_environment_has_nothing_of_the_source_tree(wheels: Path, tmp_path: Path) -> None:
    environment = make_environment(tmp_path, wheels)
    code = (
        "import importlib.util as u; print(*map(bool, map(u.find_spec, ('torch', 'deepinfer_core', 'deepinfer_cpu'))))"
    )
    assert environment.run(f'python -c "{code}"', tmp_path).stdout == "True False False\n"


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_has_blocks_that_are_run(page: str) -> None:
    blocks = read_blocks(ROOT / "docs" / page)
    assert sum(block.command for block in blocks) >= 4
    assert any(block.lines for block in blocks)


def test_a_block_that_nothing_runs_is_a_fault(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```sh\ntrue\n```\n")
    with pytest.raises(AssertionError, match="page.md:3: nothing runs a block marked 'sh'"):
        read_blocks(page)


def test_lines_are_looked_for_in_order() -> None:
    output = "one\n  two 2 too\nthree\n"
    assert missing_lines("one\ntwo ...\n", output) == []
    assert missing_lines("three\none\n", output) == ["one"]
    assert missing_lines("tw\n", output) == ["tw"]
