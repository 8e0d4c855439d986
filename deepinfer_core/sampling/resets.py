"""From the requests given a slot in a step to the tensors that set the slots' state on the device. Host only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepinfer_core.sampling.plan import CountResets, SlotResets, SlotValues
from deepinfer_core.sampling.request import SlotSampling

NUMBERS, INTEGERS = 6, 5  # columns of SlotValues
_SMALLEST = float(np.finfo(np.float32).tiny)  # a repetition penalty may not round to zero


def slot_resets(entries: Sequence[SlotSampling], vocab_size: int) -> SlotResets:
    """The state of slots that start anew, resumed requests with what they had generated."""
    masks = [(e.slot, e.request.token_mask) for e in entries if e.request.token_mask is not None]
    penalised = [e for e in entries if e.request.penalised]
    return SlotResets(
        slots=torch.tensor([e.slot for e in entries]),
        values=slot_values(entries),
        mask_slots=torch.tensor([slot for slot, _ in masks]) if masks else None,
        masks=torch.from_numpy(np.stack([mask for _, mask in masks])) if masks else None,
        counts=_counts(penalised, vocab_size) if penalised else None,
    )


def slot_values(entries: Sequence[SlotSampling]) -> SlotValues:
    """The numeric parameters of each entry, in the columns that the properties of `SlotValues` read."""
    numbers, integers = [], []
    for e in entries:
        p = e.request.params
        repetition = max(p.repetition_penalty, _SMALLEST)
        numbers.append((p.temperature, p.top_p, p.min_p, repetition, p.presence_penalty, p.frequency_penalty))
        seed = e.request.seed - (1 << 64 if e.request.seed >> 63 else 0)
        integers.append((max(p.top_k, 0), seed, e.sample, len(e.prompt), p.min_tokens))
    return SlotValues(torch.tensor(numbers, dtype=torch.float64), torch.tensor(integers, dtype=torch.int64))


def _counts(entries: Sequence[SlotSampling], vocab_size: int) -> CountResets:
    prompts = [e.prompt[e.prompt < vocab_size] for e in entries]
    outputs = [e.output for e in entries]
    return CountResets(
        slots=torch.tensor([e.slot for e in entries]),
        prompt_slot=_slot_of_each(entries, prompts),
        prompt_token=_joined(prompts),
        output_slot=_slot_of_each(entries, outputs),
        output_token=_joined(outputs),
    )


def _slot_of_each(entries: Sequence[SlotSampling], tokens: Sequence[NDArray[np.int32]]) -> Tensor:
    return torch.from_numpy(np.repeat(np.array([e.slot for e in entries], np.int64), [len(part) for part in tokens]))


def _joined(tokens: Sequence[NDArray[np.int32]]) -> Tensor:
    return torch.from_numpy(np.concatenate(tokens).astype(np.int64))
