"""Cache rows into their stored formats, and activation quantisation. Meanings: deepinfer_core/ops."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from deepinfer_core.interfaces.ops import RowFormat
from deepinfer_cpu._kernels import Table
from deepinfer_cpu.kernels.arguments import ROW_NUMBER, as_type, empty, f32

BLOCK = 32  # a multiple of every format's block


class CacheRows:
    """The kernels of cache.py and quant.py, on one instruction set."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def write_rows(self, pool: Tensor, x: Tensor, dest: Tensor, format: RowFormat) -> None:
        """Store x [T, d] in rows dest [T] of the pool."""
        a, d = f32(x), as_type(dest, torch.int64)
        self._table.write_rows(
            pool.data_ptr(),
            pool.shape[1],
            a.data_ptr(),
            a.shape[0],
            a.shape[1],
            d.data_ptr(),
            ROW_NUMBER[format],
        )

    def copy_rows(self, pool: Tensor, source: Tensor, dest: Tensor) -> None:
        """Copy rows source [M] of the pool to rows dest [M]."""
        s, d = as_type(source, torch.int64), as_type(dest, torch.int64)
        self._table.copy_rows(pool.data_ptr(), pool.shape[1], s.data_ptr(), d.data_ptr(), d.shape[0])

    def fake_quant(self, x: Tensor, format: RowFormat) -> Tensor:
        """[..., d] -> [..., d]."""
        width = x.shape[-1]
        a = f32(x if width % BLOCK == 0 else pad(x, (0, -width % BLOCK)))
        y = empty(*a.shape)
        self._table.fake_quant(a.data_ptr(), a.numel() // a.shape[-1], a.shape[-1], ROW_NUMBER[format], y.data_ptr())
        return as_type(y[..., :width], x.dtype)
