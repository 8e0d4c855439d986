"""Norms, rotary embedding, hyper-connections and the Engram gate. Meanings: deepinfer_core/ops."""

from __future__ import annotations

from torch import Tensor

from deepinfer_cpu._kernels import Table


class Streams:
    """The kernels of norm.py, rope.py, hyper_connection.py and engram.py's gate, on one instruction set."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """[T, D] -> [T, D]."""
        return self._table.rms_norm(x, weight, eps)

    def apply_rope(self, x: Tensor, position: Tensor, inv_freq: Tensor, inverse: bool = False) -> Tensor:
        """[T, R] or [T, H, R] -> the same."""
        return self._table.apply_rope(x, position, inv_freq, inverse)

    def hc_mixes(
        self, streams: Tensor, fn: Tensor, base: Tensor, scale: Tensor, norm_eps: float, hc_eps: float, iterations: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[T, n, D] -> pre [T, n], post [T, n], comb [T, n, n]."""
        return self._table.hc_mixes(streams, fn, base, scale, norm_eps, hc_eps, iterations)

    def hc_collapse(self, streams: Tensor, pre: Tensor) -> Tensor:
        """[T, n, D] -> [T, D]."""
        return self._table.hc_collapse(streams, pre)

    def hc_expand(self, y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
        """[T, D] and [T, n, D] -> [T, n, D]."""
        return self._table.hc_expand(y, streams, post, comb)

    def engram_gate(
        self, streams: Tensor, key: Tensor, value: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float
    ) -> Tensor:
        """[T, n, D] -> [T, n, D]."""
        return self._table.engram_gate(streams, key, value, q_weight, k_weight, eps)
