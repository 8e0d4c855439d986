"""Registers the observer and the command. A factory runs when its name is first asked for."""

from deepinfer_core.plugin.hookspecs import hookimpl

built_for = 1
minimum = 1


@hookimpl
def deepinfer_observers(register):
    register("usage", make_observer)


@hookimpl
def deepinfer_cli(register):
    register("usage", load_command)


def make_observer():
    """Called when an engine is built."""
    from deepinfer_usage.observer import UsageObserver

    return UsageObserver()


def load_command():
    """Called when the command is asked for. A module with HELP, configure and run is a command."""
    from deepinfer_usage import command

    return command
