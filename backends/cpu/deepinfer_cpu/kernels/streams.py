"""Norms, rotary embedding, hyper-connections and the Engram gate. Meanings: deepinfer_core/ops."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_cpu._kernels import Table
from deepinfer_cpu.kernels.arguments import as_type, empty, f32


class Streams:
    """The kernels of norm.py, rope.py, hyper_connection.py and engram.py's gate, on one instruction set."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """[T, D] -> [T, D]."""
        a, w, y = f32(x), f32(weight), empty(*x.shape)
        self._table.rms_norm(a.data_ptr(), a.shape[0], a.shape[1], w.data_ptr(), eps, y.data_ptr())
        return as_type(y, x.dtype)

    def apply_rope(self, x: Tensor, position: Tensor, inv_freq: Tensor, inverse: bool = False) -> Tensor:
        """[T, R] or [T, H, R] -> the same."""
        a, p, f, y = f32(x), as_type(position, torch.int32), f32(inv_freq), empty(*x.shape)
        heads = x.shape[1] if x.dim() == 3 else 1
        self._table.apply_rope(
            a.data_ptr(),
            a.shape[0],
            heads,
            a.shape[-1],
            p.data_ptr(),
            f.data_ptr(),
            2 * f.shape[0],
            inverse,
            y.data_ptr(),
        )
        return as_type(y, x.dtype)

    def hc_mixes(
        self, streams: Tensor, fn: Tensor, base: Tensor, scale: Tensor, norm_eps: float, hc_eps: float, iterations: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[T, n, D] -> pre [T, n], post [T, n], comb [T, n, n]."""
        a, m, b, s = f32(streams), f32(fn), f32(base), f32(scale)
        rows, n, dim = streams.shape
        pre, post, comb = empty(rows, n), empty(rows, n), empty(rows, n, n)
        self._table.hc_mixes(
            a.data_ptr(),
            rows,
            n,
            dim,
            m.data_ptr(),
            b.data_ptr(),
            s.data_ptr(),
            norm_eps,
            hc_eps,
            iterations,
            pre.data_ptr(),
            post.data_ptr(),
            comb.data_ptr(),
        )
        return pre, post, comb

    def hc_collapse(self, streams: Tensor, pre: Tensor) -> Tensor:
        """[T, n, D] -> [T, D]."""
        a, p = f32(streams), f32(pre)
        rows, n, dim = streams.shape
        y = empty(rows, dim)
        self._table.hc_collapse(a.data_ptr(), p.data_ptr(), rows, n, dim, y.data_ptr())
        return as_type(y, streams.dtype)

    def hc_expand(self, y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
        """[T, D] and [T, n, D] -> [T, n, D]."""
        a, x, p, c = f32(y), f32(streams), f32(post), f32(comb)
        rows, n, dim = streams.shape
        out = empty(rows, n, dim)
        self._table.hc_expand(a.data_ptr(), x.data_ptr(), p.data_ptr(), c.data_ptr(), rows, n, dim, out.data_ptr())
        return as_type(out, streams.dtype)

    def engram_gate(
        self, streams: Tensor, key: Tensor, value: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float
    ) -> Tensor:
        """[T, n, D] -> [T, n, D]."""
        x, k, v, q, w = f32(streams), f32(key), f32(value), f32(q_weight), f32(k_weight)
        rows, n, dim = streams.shape
        out = empty(rows, n, dim)
        self._table.engram_gate(
            x.data_ptr(),
            k.data_ptr(),
            v.data_ptr(),
            q.data_ptr(),
            w.data_ptr(),
            rows,
            n,
            dim,
            eps,
            out.data_ptr(),
        )
        return as_type(out, streams.dtype)
