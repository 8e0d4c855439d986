"""docs/conformance/cpu.md is the card of the CPU backend as it is now. To make it anew:

deepinfer conformance cpu --level full --report docs/conformance/cpu.md
"""

from pathlib import Path

import pytest

from deepinfer_conformance import SUITE_VERSION, inventory
from deepinfer_conformance.claims import CLAIMS, unclaimed
from deepinfer_conformance.collection import capabilities_of, is_standard
from deepinfer_core.plugin.version import INTERFACE
from deepinfer_cpu.backend import CpuBackend

ROOT = Path(__file__).parents[3]
CARD = ROOT / "docs" / "conformance" / "cpu.md"
CLAIMED = CpuBackend().capabilities()


class Collected:
    """Keeps the standard tests that a run at level full has."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session):
        self.tests = [
            (item.path.stem.removeprefix("test_"), capabilities_of(item)) for item in session.items if is_standard(item)
        ]


@pytest.fixture(scope="module")
def tests():
    """(area, capabilities) of every test."""
    collected = Collected()
    words = ["-c", str(inventory.PACKAGE / "conformance.ini"), "--rootdir", str(inventory.PACKAGE), "--noconftest"]
    words += ["-p", "deepinfer_conformance.plugin", "--pyargs", "deepinfer_conformance"]
    code = pytest.main([*words, "--backend=cpu", "--level=full", "--collect-only", "-qq"], plugins=[collected])
    assert code == 0
    return collected.tests


def rows(heading):
    """The cells of the table under a heading, without its head."""
    section = CARD.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[1:]]


def expected(capabilities):
    """[pass, fail, waived, not claimed] of tests with these capabilities, where everything conforms."""
    not_claimed = sum(bool(unclaimed(names, CLAIMED)) for names in capabilities)
    return [str(count) for count in (len(capabilities) - not_claimed, 0, 0, not_claimed)]


def test_the_cpu_backend_conforms_at_full():
    assert f"**CONFORMS (full, interface {INTERFACE})**" in CARD.read_text()


def test_the_card_is_of_this_suite():
    assert f"| suite | {SUITE_VERSION}, interface {INTERFACE}, level full, seed 0 |" in CARD.read_text()


def test_the_card_counts_the_tests_that_there_are(tests):
    areas = sorted({area for area, _ in tests})
    assert rows("Areas") == [[area, *expected([names for one, names in tests if one == area])] for area in areas]


def test_the_card_has_the_capabilities_that_are_claimed(tests):
    wanted = [
        [name, "yes" if claim(CLAIMED) else "no", *expected([names for _, names in tests if name in names])]
        for name, claim in CLAIMS.items()
    ]
    assert rows("Capabilities") == wanted


def test_the_card_measured_what_the_backend_declares():
    level = int(CLAIMED.determinism)
    assert f"| determinism | declared D{level}, measured D{level} |" in CARD.read_text()
