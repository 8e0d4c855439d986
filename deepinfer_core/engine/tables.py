"""Per-slot tables on the device: the block table, true lengths and last tokens. Only functions on the queue touch them.

The host plans on upper bounds and never waits for a length; a step reads these tables before its forward and advances
them after it, so the next step can be submitted before the tokens of this one are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepinfer_core.sampling.request import BAD_WORD_HISTORY

if TYPE_CHECKING:
    from torch import Tensor

    from deepinfer_core.engine.step import StepFields
    from deepinfer_core.interfaces.model import ModelInfo


def past_tokens(info: ModelInfo) -> int:
    """Tokens before a row's own that the model or bad words look at."""
    return max(info.history_rows, BAD_WORD_HISTORY)


def history_rows(info: ModelInfo, max_drafts: int) -> int:
    """Rows of a slot's token ring: the past that is looked at, then one step's new tokens."""
    return past_tokens(info) + 1 + max_drafts + 1


class DeviceTables:
    """block_table int32 [slots, max blocks]; length int32 [slots]; history int64 [slots, rows].

    `length` counts the tokens whose caches are written: it is the position of the next row. The token of position p is
    in `history` at p % rows, for every p <= length.
    """

    def __init__(self, slots: int, max_blocks: int, rows: int, device: torch.device) -> None:
        self.block_table = torch.zeros((slots, max_blocks), dtype=torch.int32, device=device)
        self.length = torch.zeros(slots, dtype=torch.int32, device=device)
        self.history = torch.zeros((slots, rows), dtype=torch.int64, device=device)

    def apply(self, fields: StepFields[Tensor]) -> None:
        """Before a step: empty the slots that begin anew, give them the past that they do not run, and set the blocks
        that the plan gave."""
        self.length[fields.new_slot] = 0
        if len(fields.past_slot):
            self.history[fields.past_slot, fields.past_index] = fields.past_token
        self.block_table[fields.table_slot, fields.table_index] = fields.table_block.int()

    def last_tokens(self, slot: Tensor) -> Tensor:
        """The newest token of each slot int64 [n]: int64 [n]."""
        rows = self.history.shape[1]
        return self.history[slot, self.length[slot].long() % rows]

    def remember_prompt(self, fields: StepFields[Tensor]) -> None:
        """After the forward: the tokens of prefill chunks enter the history."""
        self.history[fields.history_slot, fields.history_index] = fields.history_token

    def advance(self, fields: StepFields[Tensor], position: Tensor, tokens: Tensor, counts: Tensor) -> None:
        """After sampling: lengths move on and sampled tokens enter the history.

        position int64 [n]: of each sampled segment's last row before its drafts; tokens int64 [n, 1 + drafts];
        counts [n]: how many of them hold. Those beyond are written too, above every length, where nobody looks.
        """
        self.length[fields.prefill_slot] = fields.prefill_end.int()
        self.length[fields.decode_slot] += counts[fields.decode_sample].int()
        steps = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
        place = (position[:, None] + steps) % self.history.shape[1]
        self.history[fields.sample_slot[:, None], place] = tokens
