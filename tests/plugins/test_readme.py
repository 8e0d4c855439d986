"""What the README shows the bundled model say is what it says."""

import re
import shlex
from pathlib import Path

import pytest

from deepinfer_core.cli.main import main
from deepinfer_cpu import kernels

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^\$ deepinfer (generate .*)\n((?:(?!\$ |```).*\n)+)", README, re.MULTILINE)


def test_the_readme_shows_a_story_and_json() -> None:
    assert len(SHOWN) == 2


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=["story", "json"])
def test_the_model_says_what_the_readme_shows(
    command: str, output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the instructions that the README names, where they exist; the JSON, never a close call, always."""
    make = kernels.kernels
    if kernels.Table().isa != "generic":
        monkeypatch.setattr(kernels, "kernels", lambda: make("avx2"))
    elif "--temperature 0 " not in command:
        pytest.skip("the story is that of AVX2, which this processor does not have")
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == output
