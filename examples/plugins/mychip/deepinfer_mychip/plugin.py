"""The door: registers the backend without importing it. `built_for` and `minimum` are interface versions."""

from deepinfer_core.plugin.hookspecs import hookimpl

built_for = 1
minimum = 1


@hookimpl
def deepinfer_backends(register):
    register("mychip", make_backend)


def make_backend():
    """Called when the backend is first asked for."""
    from deepinfer_mychip.backend import MyChipBackend

    return MyChipBackend()


@hookimpl
def deepinfer_report():
    return {"driver": "none needed: this is an example"}
