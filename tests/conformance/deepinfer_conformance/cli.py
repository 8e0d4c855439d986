"""The commands that the suite adds to the `deepinfer` program. Importing this imports neither torch nor pytest."""

from __future__ import annotations

from deepinfer_core.plugin.hookspecs import Command, Register, hookimpl

built_for = 1
minimum = 1


@hookimpl
def deepinfer_cli(register: Register[Command]) -> None:
    register("conformance", _conformance)
    register("new-backend", _new_backend)
    register("new-plugin", _new_plugin)


def _conformance() -> Command:
    from deepinfer_conformance import command

    return command


def _new_backend() -> Command:
    from deepinfer_conformance.scaffold.commands import NewBackend

    return NewBackend()


def _new_plugin() -> Command:
    from deepinfer_conformance.scaffold.commands import NewPlugin

    return NewPlugin()
