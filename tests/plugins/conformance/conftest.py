"""Suites made on the spot: a few tests in place of the standard ones, run by the plugin as the standard ones are."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from deepinfer_conformance import inventory


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished run: pytest's exit code, the card as JSON (None when there is none), and what was printed."""

    code: int
    card: dict | None
    text: str

    def counts(self, area="made"):
        counts = self.card["areas"][area]
        return tuple(counts[name] for name in ("passed", "failed", "waived", "not_claimed"))


@pytest.fixture
def suite(tmp_path, monkeypatch, capsys):
    """`suite(text, *flags, ...)` runs the tests in `text` as the area `made`, on cpu if nothing else is named."""
    package = tmp_path / "made_suite"
    areas = package / "areas"
    areas.mkdir(parents=True)
    for name, value in {"PACKAGE": package, "AREAS": areas, "FILE": package / "inventory.txt"}.items():
        monkeypatch.setattr(inventory, name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # one file with several contents within a second

    def run(text, *flags, waivers=None, plugin=None, backend="cpu", listed=None):
        (areas / "test_made.py").write_text(f"import pytest\n\n{text}")
        inventory.FILE.write_text(inventory.render(listed or inventory.present()))
        words = [str(areas), "-c", "/dev/null", "--rootdir", str(package), "-p", "no:cacheprovider"]
        words += ["--import-mode=importlib", "-p", "deepinfer_conformance.plugin", "--strict-markers"]
        words += [f"--backend={backend}", "--report=card.json", "--report=card.md", *flags]
        if waivers is not None:
            Path("waivers.toml").write_text(waivers)
            words.append("--waivers=waivers.toml")
        before = set(sys.modules)
        code = int(pytest.main(words, plugins=[plugin] if plugin else []))
        for name in set(sys.modules) - before:
            if name.endswith("test_made"):
                del sys.modules[name]
        printed = capsys.readouterr()
        card = json.loads(Path("card.json").read_text()) if Path("card.json").exists() else None
        return Ran(code, card, printed.out + printed.err)

    return run
