"""The table of the chip's own kernels; each family of ops has a file beside this one.

A kernel has exactly its reference's parameters. An op that is not in the table runs on its reference, and the engine,
`deepinfer doctor` and the conformance card say so.
"""

from __future__ import annotations

from collections.abc import Mapping

from deepinfer_core.interfaces.ops import Kernel

from deepinfer_mychip.kernels.norm import rms_norm

KERNELS: Mapping[str, Kernel] = {
    "rms_norm": rms_norm,
}
