import torch

from deepinfer_core.cache.layout import CacheRequest, fit_cache
from deepinfer_core.cache.pools import allocate_pools
from deepinfer_core.interfaces.cache import CacheSpec, PagedSpec, RingSpec
from deepinfer_core.interfaces.ops import RowFormat


def test_each_pool_is_rows_of_bytes():
    spec = CacheSpec(
        paged=(PagedSpec("latent.2", RowFormat.FP4_E4M3_16, 64, ratio=2), PagedSpec("latent.5", RowFormat.BF16, 64)),
        rings=(RingSpec("window", RowFormat.FP8_E8M0_32, 64, rows=20, layers=3, scratch=True),),
    )
    request = CacheRequest(
        slots=4, block_size=16, step_tokens=9, max_length=64, cache_tokens=32, memory_share=1.0, free_bytes=1 << 20
    )
    layout = fit_cache(spec, request)
    pools = allocate_pools(spec, layout, torch.device("cpu"))
    assert {name: tuple(pool.shape) for name, pool in pools.paged.items()} == {
        "latent.2": (2 * 8, 36),
        "latent.5": (2 * 16, 128),
    }
    assert {name: tuple(pool.shape) for name, pool in pools.rings.items()} == {"window": (3 * 4 * 20 + 9, 66)}
    every = (*pools.paged.values(), *pools.rings.values())
    assert all(pool.dtype == torch.uint8 for pool in every)
    assert sum(pool.numel() for pool in every) == layout.total_bytes
    assert (pools.slots, pools.block_size) == (4, 16)
