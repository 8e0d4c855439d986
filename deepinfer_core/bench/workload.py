"""Made-up work for measurements: random prompts of one length, decoded greedily to one length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch

from deepinfer_core.api.params import SamplingParams
from deepinfer_core.engine.request import Request

if TYPE_CHECKING:
    from deepinfer_core.engine.build import Built
    from deepinfer_core.interfaces.model import ModelInfo


def random_requests(info: ModelInfo, count: int, prompt_tokens: int, answer_tokens: int) -> Iterator[Request]:
    """The same for the same arguments. Ends of sequences are ignored, and no prompt holds an image's place."""
    generator = torch.Generator().manual_seed(count)
    params = SamplingParams(temperature=0.0, max_tokens=answer_tokens, ignore_eos=True)
    for number in range(count):
        ids = torch.randint(3, info.vocab_size, (prompt_tokens,), generator=generator).tolist()
        ids = [3 if token == info.image_token_id else token for token in ids]
        yield Request(str(number), prompt_token_ids=tuple(ids), params=params)


def serve(built: Built, requests: Iterable[Request]) -> None:
    """Answer them all at once. Raises the error of the first that fails."""
    for request in requests:
        built.engine.add(request)
    while built.engine.has_unfinished():
        for finished in built.engine.step():
            if finished.output.error is not None:
                raise finished.output.error
