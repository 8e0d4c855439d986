"""docs/plugin-api.md shows code that exists and names every hook."""

import re
import textwrap
from pathlib import Path

from deepinfer_core.plugin.loader import HOOKS
from deepinfer_core.plugin.registry import AWAITED, Registry
from deepinfer_core.plugin.version import INTERFACE

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "plugin-api.md").read_text()


def test_every_block_of_code_is_part_of_an_example():
    files = [path.read_text() for path in (ROOT / "examples" / "plugins").rglob("*") if path.suffix in (".py", ".toml")]
    blocks = re.findall(r"^( *)```(?:python|toml)\n(.*?)^ *```", TEXT, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    for indent, block in blocks:
        code = "".join(line.removeprefix(indent) for line in block.splitlines(keepends=True))
        assert any(code in text for text in files), textwrap.shorten(code, 80)


def test_every_hook_has_a_row_that_is_true():
    rows = dict(re.findall(r"^\| `(deepinfer_\w+)\(.*\)` \|.*\| (.*) \|$", TEXT, re.MULTILINE))
    assert set(rows) == set(HOOKS)
    tables = Registry().by_hook
    unused = {hook for hook, use in rows.items() if use == "nothing yet"}
    assert unused == {hook for hook, table in tables.items() if table.kind in AWAITED}


def test_the_interface_version_is_the_cores():
    assert f"Interface version: **{INTERFACE}**" in TEXT
    assert re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)[-1] == str(INTERFACE)
