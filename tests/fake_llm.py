"""A stand-in for LLM that obeys its protocol: a window of requests in flight, finished in any order."""

import random
import zlib

from deepinfer_core.api.errors import DeviceError, PromptTooLong
from deepinfer_core.api.outputs import CompletionOutput, RequestOutput

TOO_LONG = "too long"


class FakeLLM:
    """Answers are a function of the prompt and the seed. `dies_after` outputs the device fails."""

    max_length = 4096

    def __init__(self, tokenizer, window=4, seed=0, dies_after=None):
        self.tokenizer = tokenizer
        self.most_in_flight = 0
        self.entered = self.left = 0
        self._window = window
        self._random = random.Random(seed)
        self._dies_after = dies_after

    def __enter__(self):
        self.entered += 1
        return self

    def __exit__(self, *_):
        self.left += 1

    def stream(self, requests):
        requests = iter(requests)
        running = []
        given = 0
        while True:
            while len(running) < self._window and (request := next(requests, None)) is not None:
                running.append(request)
            if not running:
                return
            if given == self._dies_after:
                raise DeviceError("the device fell off")
            self.most_in_flight = max(self.most_in_flight, len(running))
            yield self._answer(running.pop(self._random.randrange(len(running))))
            given += 1

    def _answer(self, request):
        prompt = request.prompt
        ids = request.prompt_token_ids
        if ids is None:
            ids = tuple(self.tokenizer.encode(prompt))
        if prompt == TOO_LONG:
            return RequestOutput(request.request_id, prompt, ids, error=PromptTooLong("the prompt has too many tokens"))
        text = f"answer {zlib.crc32(repr((prompt, ids, request.params.seed)).encode()):08x}"
        answers = tuple(
            CompletionOutput(index, f"{text} {index}", tuple(text.encode()), "stop")
            for index in range(request.params.n)
        )
        return RequestOutput(request.request_id, prompt, ids, answers, seed=request.params.seed)
