"""The tests of the C++ scheduler and prefix cache bite: each mutant below is wrong in one place, and the test that is
named with it fails. All mutants are built into one module, and a number in the environment chooses among them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "deepinfer_core" / "csrc"
CHOICE = "NATIVE_MUTANT"
SWITCH = f"""
#include <cstdlib>
inline int mutant() {{
    static const int chosen = std::atoi(std::getenv("{CHOICE}"));
    return chosen;
}}
"""


@dataclass(frozen=True)
class Mutant:
    """`right`, which `file` has once, becomes `wrong`. `also`: other mutants that are on with this one."""

    name: str
    file: str
    right: str
    wrong: str
    killer: str
    also: tuple[str, ...] = ()


PREFIX, ABORT, PRESSURE, COMMIT = (f"test_scheduler_{name}.py::" for name in ("prefix", "abort", "pressure", "commit"))
# Not a mutant by itself: an input that makes hashes collide. Where tokens are compared, nothing comes of it.
WEAK = Mutant("weak_hash", "prefix_cache.cpp", "tokens.size_bytes());\n    std", "0);\n    std", "")
