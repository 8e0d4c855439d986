"""A model whose next token is a hash of its whole prefix, read back from the caches alone: any token, position, block,
slot or ring row that is wrong, stale or somebody else's changes every token after it. Arithmetic is on integers, so
results do not depend on the batch. `expected_logits` computes the same from a list of tokens, without any cache.

Two layers of windows: the second looks at what the first computed, as do the pairs, so that a prefix hit must replay
exactly as many rows as `INFO.reach` says."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deepinfer_core.interfaces.cache import CacheSpec, PagedSpec, RingSpec
from deepinfer_core.interfaces.model import CachePools, ModelInfo, StepInput, WindowReach
from deepinfer_core.interfaces.ops import RowFormat, Rows

VOCAB = 61
EOS = (1, 7)
IMAGE = 60
WINDOW = 4
DECODER_ROWS = 3  # fewer than the window, so that the last row feels where the decoder half begins
NGRAM = 5  # more than a window, so that a replay needs the tokens before it
PENDING_ROWS = 2
RING_ROWS = WINDOW + 2

INFO = ModelInfo(
    architecture="Fake",
    vocab_size=VOCAB,
    max_length=128,
    eos_token_ids=EOS,
    bos_token_id=0,
    image_token_id=IMAGE,
    history_rows=NGRAM,
    decoder_rows=DECODER_ROWS,
    max_drafts=0,
    stored_bytes=0,
    reach=WindowReach(keys=WINDOW - 1, kept=WINDOW - 1, logits=2 * (WINDOW - 1)),
)
NUMBER = {"format": RowFormat.F32, "dim": 2}  # a row is 8 bytes: one int64
SPEC = CacheSpec(
    paged=(PagedSpec("entries", **NUMBER), PagedSpec("pairs", ratio=2, **NUMBER)),
    rings=(
        RingSpec("window", rows=RING_ROWS, layers=2, scratch=True, **NUMBER),
        RingSpec("pending", rows=PENDING_ROWS, **NUMBER),
    ),
)


def mix(a: Tensor, b: Tensor | int) -> Tensor:
    """A hash of two int64 tensors that wraps around and depends on their order."""
    x = (a >> 31).bitwise_xor_(a).mul_(0x9E3779B97F4A7C1) + (b * 0xC2B2AE3D27D4EB5 + 0x165667B19E3779)
    x = (x >> 29).bitwise_xor_(x).mul_(0x5851F42D4C957F2)
    return (x >> 32).bitwise_xor_(x)


def entry(tokens: Tensor, position: Tensor) -> Tensor:
    return mix(tokens.long() + 1, position.long())


def logits_of(digest: Tensor) -> Tensor:
    """float32 [N, VOCAB], each a multiple of 2**-16 in [0, 8), so that float32 holds it exactly."""
    return ((mix(digest[:, None], torch.arange(VOCAB)) >> 20) & 0x7FFFF).float() * 2.0**-16


def expected_logits(tokens: list[int], decoder_start: int) -> Tensor:
    """float32 [1, VOCAB]: what follows `tokens`, from the definition."""
    ids = torch.tensor(tokens)
    last = len(tokens) - 1
    position = torch.arange(len(tokens))
    entries = entry(ids, position)
    early, grams = windows(mix(entries, 0), 0), ngrams(ids)
    mixed = mix(mix(entries, early), grams)
    pairs = mix(mixed[0 : len(tokens) // 2 * 2 : 2], mixed[1::2])
    digest = mix(entries, position).sum() + mix(pairs, 3 * torch.arange(len(pairs))).sum()
    digest += early[last] + windows(mix(mixed, 1), decoder_start)[last] + grams[last]
    return logits_of(digest[None])


def windows(keys: Tensor, floor: int) -> Tensor:
    """What each position sees of the last WINDOW keys, none below `floor`."""
    position = torch.arange(len(keys))
    seen = position[:, None] - torch.arange(WINDOW)
    return torch.where(seen >= floor, mix(keys[seen.clamp(min=0)], torch.arange(WINDOW)), 0).sum(-1)


def ngrams(ids: Tensor) -> Tensor:
    """What each position sees of its own token and the NGRAM before it."""
    back = torch.arange(NGRAM + 1)
    seen = torch.arange(len(ids))[:, None] - back
    return mix(torch.where(seen >= 0, ids[seen.clamp(min=0)], -1), 100 + back).sum(-1)


@dataclass(frozen=True)
class FakeModel:
    """Implements `Model`. `poison_token` makes the logits of rows that follow it NaN, `broken_token` raises."""

    poison_token: int | None = None
    broken_token: int | None = None

    @property
    def info(self) -> ModelInfo:
        return INFO

    def cache_spec(self) -> CacheSpec:
        return SPEC

    def forward(self, step: StepInput, pools: CachePools) -> Tensor:
        if self.broken_token is not None and bool((step.tokens == self.broken_token).any()):
            raise RuntimeError("the device lost its way")
        rows, kept = step.rows, step.kept
        entries = entry(step.tokens, rows.position)
        self._write(step, pools, "entries", 1, rows.position.long(), entries)
        early = self._window(0, rows, mix(entries, 0), pools)
        grams = self._ngrams(step)
        mixed = mix(mix(entries, early), grams)
        self._write_pairs(step, pools, mixed)
        late = self._window(1, step.kept_rows, mix(mixed[kept], 1), pools)
        total = self._paged(step, pools, "entries", 1) + self._paged(step, pools, "pairs", 2)
        digest = (total + early + grams)[kept] + late
        logits = logits_of(digest[step.logit_rows])
        if self.poison_token is not None:
            logits[step.tokens[kept][step.logit_rows] == self.poison_token] = torch.nan
        return logits

    def _write_pairs(self, step: StepInput, pools: CachePools, mixed: Tensor) -> None:
        rows, pending = step.rows, numbers(pools.rings["pending"])
        position, slot = rows.position.long(), rows.slot.long()
        inside = position - 1 >= rows.first_position
        previous = torch.where(inside, mixed.roll(1), pending[slot * PENDING_ROWS + (position - 1) % PENDING_ROWS])
        odd = position % 2 == 1
        self._write(step, pools, "pairs", 2, torch.where(odd, position // 2, -1), mix(previous, mixed))
        last = position > rows.last_position - PENDING_ROWS
        store(pending, (slot * PENDING_ROWS + position % PENDING_ROWS)[last], mixed[last])

    def _write(self, step: StepInput, pools: CachePools, name: str, ratio: int, index: Tensor, values: Tensor) -> None:
        """Store one value a row in a paged pool, at entry `index` of the row's request; -1 stores nothing, nor does a
        row whose block is shared."""
        good = (index >= 0) & (step.rows.position >= step.write_start)
        place = pool_rows(step, pools.block_size // ratio, step.rows.slot.long()[good], index[good])
        store(numbers(pools.paged[name]), place, values[good])

    def _paged(self, step: StepInput, pools: CachePools, name: str, ratio: int) -> Tensor:
        """Sum over all entries that each row may see."""
        index = torch.arange(-(-step.max_end // ratio))
        seen = index < ((step.rows.position.long() + 1) // ratio)[:, None]
        slot, wide = step.rows.slot.long()[:, None].expand_as(seen), index.expand_as(seen)
        place = pool_rows(step, pools.block_size // ratio, slot[seen], wide[seen])
        values = torch.zeros(seen.shape, dtype=torch.int64)
        values[seen] = mix(numbers(pools.paged[name])[place], wide[seen] * (1 if ratio == 1 else 3))
        return values.sum(-1)

    def _window(self, layer: int, rows: Rows, keys: Tensor, pools: CachePools) -> Tensor:
        """Write a layer's ring and sum over the window of each row."""
        pool, slots = numbers(pools.rings["window"]), pools.slots
        base, fresh = layer * slots * RING_ROWS, 2 * slots * RING_ROWS
        position = rows.position.long()
        pool[fresh : fresh + len(keys)] = keys
        back = torch.arange(WINDOW)
        seen = position[:, None] - back
        inside = seen >= rows.first_position[:, None]
        place = torch.where(
            inside,
            fresh + rows.first_row[:, None] + seen - rows.first_position[:, None],
            base + rows.slot[:, None] * RING_ROWS + seen % RING_ROWS,
        )
        visible = seen >= rows.floor[:, None].clamp(min=0)
        total = torch.where(visible, mix(pool[place.long()], back), 0).sum(-1)
        last = position > rows.last_position - RING_ROWS
        place = base + rows.slot.long() * RING_ROWS + position % RING_ROWS
        store(pool, place[last], keys[last])
        return total

    def _ngrams(self, step: StepInput) -> Tensor:
        rows, history = step.rows, step.history
        seen = rows.position.long()[:, None] - torch.arange(NGRAM + 1)
        offset = seen - rows.first_position[:, None]
        fresh = step.tokens[(rows.first_row[:, None] + offset).clamp(min=0)]
        past = history[rows.slot.long()[:, None], seen % history.shape[1]]
        tokens = torch.where(seen < 0, -1, torch.where(offset >= 0, fresh, past))
        return mix(tokens, 100 + torch.arange(NGRAM + 1)).sum(-1)


def store(pool: Tensor, place: Tensor, values: Tensor) -> None:
    assert len(place.unique()) == len(place), "two rows of a step are stored in one place"
    pool[place] = values


def numbers(pool: Tensor) -> Tensor:
    """A pool's rows as int64 [rows], sharing its memory."""
    return pool.view(torch.int64)[:, 0]


def pool_rows(step: StepInput, block_rows: int, slot: Tensor, index: Tensor) -> Tensor:
    return step.block_table[slot, index // block_rows].long() * block_rows + index % block_rows
