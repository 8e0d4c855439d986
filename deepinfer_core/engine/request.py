"""A request as the engine takes it. What happens to it afterwards is in `engine/sequence.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

from deepinfer_core.api.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how to continue it: text that is still to be encoded, or token ids, exactly one of them.

    `request_id` is the caller's name for it; it comes back in the output and need not be unique. Only requests of equal
    `cache_salt` share cached prefixes. With `stream` its text can be had while it is written: `Engine.take_pieces`.
    """

    request_id: str
    prompt: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    params: SamplingParams = field(default_factory=SamplingParams)
    cache_salt: str | None = None
    stream: bool = False
