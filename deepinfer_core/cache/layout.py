"""How many blocks and slots fit, in numbers only. The tensors are made in `pools.py`; which block is whose is the
scheduler's business."""

from __future__ import annotations

from dataclasses import dataclass

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.interfaces.cache import CacheSpec, PagedSpec, RingSpec

MAX_POOL_ROWS = 2**31 - 1  # pool rows are addressed with 32-bit numbers


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """The sizes of every pool. Bytes are those of the pools' tensors."""

    num_blocks: int
    block_size: int  # native tokens a block
    slots: int  # requests running at once
    scratch_rows: int  # rows a step may have
    paged_bytes: int
    ring_bytes: int

    @property
    def tokens(self) -> int:
        """Native tokens that all blocks hold together."""
        return self.num_blocks * self.block_size

    @property
    def total_bytes(self) -> int:
        return self.paged_bytes + self.ring_bytes

    def paged_rows(self, spec: PagedSpec) -> int:
        return self.num_blocks * (self.block_size // spec.ratio)

    def ring_rows(self, spec: RingSpec) -> int:
        return _ring_rows(spec, self.slots, self.scratch_rows)


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """What the engine asks for. Either `cache_tokens`, or `memory_share` of `free_bytes` for everything together."""

    slots: int
    block_size: int
    step_tokens: int  # rows a step may have
    max_length: int  # positions a sequence may have
    cache_tokens: int | None
    memory_share: float
    free_bytes: int


def fit_cache(spec: CacheSpec, request: CacheRequest) -> CacheLayout:
    """Choose the number of blocks. Raises `ConfigError` with both numbers when the pools cannot fit.

    Never more blocks than all slots at full length could use.
    """
    _check_block_size(spec, request.block_size)
    block_bytes = spec.block_bytes(request.block_size)
    ring_bytes = sum(_ring_rows(r, request.slots, request.step_tokens) * r.format.row_bytes(r.dim) for r in spec.rings)
    if request.cache_tokens is None:
        blocks = _blocks_in_share(request, block_bytes, ring_bytes)
    else:
        blocks = _blocks_for_tokens(request, request.cache_tokens, block_bytes, ring_bytes)
    layout = CacheLayout(
        num_blocks=blocks,
        block_size=request.block_size,
        slots=request.slots,
        scratch_rows=request.step_tokens,
        paged_bytes=blocks * block_bytes,
        ring_bytes=ring_bytes,
    )
    _check_rows(spec, layout)
    return layout


def _ring_rows(spec: RingSpec, slots: int, scratch_rows: int) -> int:
    return spec.layers * slots * spec.rows + (scratch_rows if spec.scratch else 0)


def _check_block_size(spec: CacheSpec, block_size: int) -> None:
    for pool in spec.paged:
        if block_size % pool.ratio:
            raise ConfigError(
                f"block_size = {block_size} is not allowed: the model's pool {pool.name!r} keeps one row for every "
                f"{pool.ratio} tokens; give a multiple of {pool.ratio}"
            )


def _blocks_for_tokens(request: CacheRequest, tokens: int, block_bytes: int, ring_bytes: int) -> int:
    blocks = -(-tokens // request.block_size)
    needed = blocks * block_bytes + ring_bytes
    if needed > request.free_bytes:
        raise ConfigError(
            f"cache_tokens = {tokens} is not allowed: the cache would take {_mib(needed)} "
            f"({_mib(blocks * block_bytes)} of blocks, {_mib(ring_bytes)} for {request.slots} slots) and the device "
            f"has {_mib(request.free_bytes)} free; give fewer cache_tokens or a smaller max_running"
        )
    return blocks


def _blocks_in_share(request: CacheRequest, block_bytes: int, ring_bytes: int) -> int:
    useful = request.slots * -(-request.max_length // request.block_size)
    budget = int(request.free_bytes * request.memory_share)
    blocks = min(useful, (budget - ring_bytes) // block_bytes) if block_bytes else useful
    if budget < ring_bytes or blocks < 1:
        raise ConfigError(
            f"cache_memory = {request.memory_share} is not allowed: it gives {_mib(budget)} of the device's "
            f"{_mib(request.free_bytes)} free, and {request.slots} slots need {_mib(ring_bytes)} and a block "
            f"{_mib(block_bytes)}; give a larger share or a smaller max_running"
        )
    return blocks


def _check_rows(spec: CacheSpec, layout: CacheLayout) -> None:
    paged = {pool.name: layout.paged_rows(pool) for pool in spec.paged}
    rings = {ring.name: layout.ring_rows(ring) for ring in spec.rings}
    for name, rows in {**paged, **rings}.items():
        if rows > MAX_POOL_ROWS:
            raise ConfigError(
                f"the cache pool {name!r} would have {rows} rows and at most {MAX_POOL_ROWS} can be addressed; "
                f"give fewer cache_tokens or a smaller max_running"
            )


def _mib(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"
