"""What a run was asked for, checked. The flags are those of `pytest` and of `deepinfer conformance`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepinfer_conformance.levels import Level, parse_level
from deepinfer_core.api.errors import ConfigError

DTYPES = ("float32", "bfloat16")  # every dtype that an op may be asked to compute in
REPORTS = (".json", ".md")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one run."""

    backend: str
    level: Level = Level.CORE
    waivers: Path | None = None
    reports: tuple[Path, ...] = ()
    seed: int = 0
    dtype: str | None = None  # None: ops in every dtype that the backend declares, the engine in the first of them


FLAGS: Mapping[str, dict[str, Any]] = {
    "--level": {"metavar": "LEVEL", "default": "core", "help": "smoke, core (the default) or full"},
    "--waivers": {"metavar": "FILE", "help": "a TOML file of tests that are known to fail, with reasons"},
    "--report": {
        "metavar": "FILE",
        "action": "append",
        "default": [],
        "help": "write the report card there too, as .json or .md; may be given twice",
    },
    "--seed": {"metavar": "N", "default": "0", "help": "seed of every random input (0)"},
    "--dtype": {"metavar": "DTYPE", "help": f"check this dtype alone: {' or '.join(DTYPES)}"},
}


def read_options(
    backend: str, level: str, waivers: str | None, report: list[str], seed: str, dtype: str | None
) -> Options:
    """Options from the words of a command line. Raises `ConfigError` naming the flag, its value and what is allowed."""
    if not backend:
        raise ConfigError("--backend is empty: give the name of a registered backend; `deepinfer plugins` lists them")
    if not seed.isascii() or not seed.isdigit() or int(seed) >= 1 << 63:
        raise ConfigError(f"--seed {seed} is not allowed: give a whole number from 0 to {(1 << 63) - 1}")
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"--dtype {dtype} is not allowed: choose one of {', '.join(DTYPES)}")
    return Options(
        backend=backend,
        level=parse_level(level),
        waivers=None if waivers is None else Path(waivers),
        reports=tuple(_report_path(name) for name in report),
        seed=int(seed),
        dtype=dtype,
    )


def _report_path(name: str) -> Path:
    path = Path(name)
    if path.suffix not in REPORTS:
        raise ConfigError(f"--report {name} is not allowed: its name must end in {' or '.join(REPORTS)}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--report {name} cannot be written: there is no folder {path.absolute().parent}")
    return path
