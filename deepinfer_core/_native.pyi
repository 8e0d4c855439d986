"""Types of the C++ module. Meanings are in `interfaces/scheduler.py`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

class Scheduler:
    def __init__(
        self,
        *,
        max_slots: int,
        num_blocks: int,
        block_size: int,
        max_step_tokens: int,
        max_length: int,
        max_drafts: int,
        prefix: tuple[int, ...] | None,
    ) -> None: ...
    def add(
        self,
        *,
        request: int,
        prompt: NDArray[np.int32],
        max_new_tokens: int,
        min_new_tokens: int,
        stop_tokens: tuple[int, ...],
        decoder_start: int,
        prompt_logits: bool,
        cache_key: bytes,
    ) -> None: ...
    def set_drafts(self, request: int, drafts: int) -> None: ...
    def plan(self) -> dict[str, Any] | None: ...
    def commit(self, step: int, tokens: NDArray[np.int32], counts: NDArray[np.int32]) -> dict[str, Any]: ...
    def finish(self, request: int) -> None: ...
    def forget(self, blocks: Sequence[int] | None) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def check(self) -> None: ...

def siphash128(key: bytes, data: bytes) -> tuple[int, int]: ...
def lay_out(
    slot: NDArray[np.int32],
    kind: NDArray[np.int32],
    first_position: NDArray[np.int32],
    num_rows: NDArray[np.int32],
    decoder_start: NDArray[np.int32],
    sample_start: NDArray[np.int32],
    kept_first: NDArray[np.int32],
    replay_start: NDArray[np.int32],
    write_start: NDArray[np.int32],
    tokens: NDArray[np.int32],
    segment: NDArray[np.int32],
    offset: NDArray[np.int32],
    kept: NDArray[np.int32],
    logit_rows: NDArray[np.int32],
    new_slots: NDArray[np.int32],
    past_slot: NDArray[np.int32],
    past_position: NDArray[np.int32],
    past_token: NDArray[np.int32],
    table_slot: NDArray[np.int32],
    table_index: NDArray[np.int32],
    table_block: NDArray[np.int32],
    prompt_logit: NDArray[np.int32],
    prompt_target: NDArray[np.int32],
    history_rows: int,
) -> tuple[NDArray[np.int32], list[int]]: ...
