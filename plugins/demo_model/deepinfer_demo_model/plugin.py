"""Registers the model sources. Importing this loads no torch; a random checkpoint is made when its name is first asked
for."""

from __future__ import annotations

from pathlib import Path

from deepinfer_core.plugin.hookspecs import Register, hookimpl

built_for = 1
minimum = 1


@hookimpl
def deepinfer_model_sources(register: Register[Path]) -> None:
    register("demo", _demo)
    register("bench-50m", _bench_50m)


def _demo() -> Path:
    return Path(__file__).parent / "trained"


def _bench_50m() -> Path:
    from deepinfer_demo_model.source import ready_folder
    from deepinfer_demo_model.spec import BENCH_50M

    return ready_folder("bench-50m", BENCH_50M)
