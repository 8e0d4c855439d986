"""How tensors and views become the plain tuples that the compiled kernels take, checked on the way."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import PagedView, RowFormat, Rows, Weight, WeightFormat, WindowView

WeightTuple = tuple[int, int, int, int, int]
RowsTuple = tuple[int, int, int, int, int, int, int]
WindowTuple = tuple[int, int, int, int, int, int]
PagedTuple = tuple[int, int, int, int, int, int]

# The numbers of views.hpp.
WEIGHT_NUMBER = {WeightFormat.F32: 0, WeightFormat.BF16: 1, WeightFormat.FP8: 2, WeightFormat.FP4: 3}
ROW_NUMBER = {
    RowFormat.F32: 0,
    RowFormat.BF16: 1,
    RowFormat.FP8_E8M0_32: 2,
    RowFormat.FP4_E4M3_16: 3,
    RowFormat.FP4_E8M0_32: 4,
}


def as_type(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x itself where it already has the dtype and is contiguous. Callers keep the result alive during the kernel."""
    return x if x.dtype is dtype and x.is_contiguous() else x.to(dtype).contiguous()


def f32(x: Tensor) -> Tensor:
    """x as contiguous float32."""
    return as_type(x, torch.float32)


def empty(*shape: int) -> Tensor:
    """Memory for float32 results on the host, whatever dtype and device the program made torch's defaults."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def weight_tuple(w: Weight) -> WeightTuple:
    """A weight, or expert 0 of a stack. Stored weights are contiguous: the loader made them."""
    assert w.data.is_contiguous(), "stored weights are contiguous"
    assert w.scale is None or w.scale.is_contiguous(), "stored scales are contiguous"
    scale = 0 if w.scale is None else w.scale.data_ptr()
    return w.data.data_ptr(), scale, WEIGHT_NUMBER[w.format], w.out_features, w.in_features


def rows_tuple(rows: Rows) -> RowsTuple:
    """Row metadata; the fields are contiguous int32 by contract."""
    return (
        rows.slot.data_ptr(),
        rows.position.data_ptr(),
        rows.first_position.data_ptr(),
        rows.first_row.data_ptr(),
        rows.last_position.data_ptr(),
        rows.floor.data_ptr(),
        len(rows),
    )


def window_tuple(view: WindowView) -> WindowTuple:
    """A layer's sliding window."""
    return (
        view.pool.data_ptr(),
        ROW_NUMBER[view.format],
        view.base,
        view.fresh_base,
        view.ring_rows,
        view.window,
    )


def paged_tuple(view: PagedView) -> PagedTuple:
    """A KV source's entries."""
    table = view.block_table
    assert table.dtype is torch.int32, "block tables are int32"
    assert table.is_contiguous(), "block tables are contiguous"
    return (
        view.pool.data_ptr(),
        ROW_NUMBER[view.format],
        table.data_ptr(),
        table.shape[1],
        view.block_rows,
        view.ratio,
    )
