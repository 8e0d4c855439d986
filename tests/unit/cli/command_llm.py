"""A stand-in for LLM as commands make and use it."""

from types import SimpleNamespace

import fake_llm
import made_tokenizers

from deepinfer_core.api.errors import RequestError
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.engine.request import Request
from deepinfer_core.text.chat import ChatFormat, read_conversation


class CommandLLM(fake_llm.FakeLLM):
    """Made as LLM is, and made so by commands."""

    tokenizer_of_all = made_tokenizers.byte_level()
    dies_after = None

    def __init__(self, model, **options):
        super().__init__(self.tokenizer_of_all, dies_after=self.dies_after)
        self.config = SimpleNamespace(model=model, **options)
        self.report = ("running on a stand-in",)
        self.asked = []

    def generate(self, prompts, params):
        texts = [
            Request(str(place), *((prompt, None) if isinstance(prompt, str) else (None, tuple(prompt))), chosen(params))
            for place, prompt in enumerate(prompts)
        ]
        return [self._answer(request) for request in texts]

    def chat(self, messages, params=None, **options):
        self.asked.append((messages, params, options))
        conversation = read_conversation({"messages": messages, **options})
        ids = ChatFormat(self.tokenizer).encode(conversation)
        if messages[-1]["content"] == fake_llm.TOO_LONG:
            raise RequestError("the prompt has too many tokens")
        answer = conversation.parse(f"thoughts</think>answer {len(messages)}", "stop")
        return SimpleNamespace(output=self._answer(Request("0", None, ids, chosen(params))), answers=(answer,))


def chosen(params):
    return params if isinstance(params, SamplingParams) else SamplingParams.from_dict(params or {})
