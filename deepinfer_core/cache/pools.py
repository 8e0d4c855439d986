"""The tensors behind a cache specification. Their sizes come from `layout.py`; their rows are written by ops only."""

from __future__ import annotations

import torch

from deepinfer_core.cache.layout import CacheLayout
from deepinfer_core.interfaces.cache import CacheSpec
from deepinfer_core.interfaces.model import CachePools


def allocate_pools(spec: CacheSpec, layout: CacheLayout, device: torch.device) -> CachePools:
    """One uint8 tensor [rows, row bytes] a pool. No row is read before it is written, so none is cleared."""

    def pool(rows: int, row_bytes: int) -> torch.Tensor:
        return torch.empty((rows, row_bytes), dtype=torch.uint8, device=device)

    return CachePools(
        paged={p.name: pool(layout.paged_rows(p), p.format.row_bytes(p.dim)) for p in spec.paged},
        rings={r.name: pool(layout.ring_rows(r), r.format.row_bytes(r.dim)) for r in spec.rings},
        slots=layout.slots,
        block_size=layout.block_size,
    )
