"""The CPU backend's kernels as the core wants them: op name -> function with the reference's signature."""

from __future__ import annotations

import torch  # noqa: F401  # not used here: it loads the libraries that _kernels, below, is linked to

from deepinfer_core.interfaces.ops import Kernel
from deepinfer_cpu._kernels import Table
from deepinfer_cpu.kernels.attention import Attention
from deepinfer_cpu.kernels.lookup import Lookup
from deepinfer_cpu.kernels.matrices import Matrices
from deepinfer_cpu.kernels.rows import CacheRows
from deepinfer_cpu.kernels.sampling import Sampling
from deepinfer_cpu.kernels.streams import Streams


def kernels(isa: str = "") -> dict[str, Kernel]:
    """The kernels of the best instruction set that runs here, or of the one named: generic, avx2 or avx512."""
    table = Table(isa)
    families = (Matrices, Attention, Streams, CacheRows, Lookup, Sampling)
    return {name: getattr(made, name) for made in (family(table) for family in families) for name in _names(made)}


def _names(family: object) -> list[str]:
    return [name for name in vars(type(family)) if not name.startswith("_")]
