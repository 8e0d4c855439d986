"""Cache rows into their stored formats, and activation quantisation. Meanings: deepinfer_core/ops."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad

from deepinfer_core.interfaces.ops import RowFormat
from deepinfer_cpu._kernels import Table

BLOCK = 32  # a multiple of every format's block


class CacheRows:
    """The kernels of cache.py and quant.py, on one instruction set."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def write_rows(self, pool: Tensor, x: Tensor, dest: Tensor, format: RowFormat) -> None:
        """Store x [T, d] in rows dest [T] of the pool."""
        self._table.write_rows(pool, x, dest, format)

    def copy_rows(self, pool: Tensor, source: Tensor, dest: Tensor) -> None:
        """Copy rows source [M] of the pool to rows dest [M]."""
        self._table.copy_rows(pool, source, dest)

    def fake_quant(self, x: Tensor, format: RowFormat) -> Tensor:
        """[..., d] -> [..., d]."""
        width = x.shape[-1]
        if width % BLOCK == 0:
            return self._table.fake_quant(x, format)
        return self._table.fake_quant(pad(x, (0, -width % BLOCK)), format)[..., :width].contiguous()
