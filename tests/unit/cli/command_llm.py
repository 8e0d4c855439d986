"""A stand-in for LLM as commands make and use it."""

from types import SimpleNamespace

import fake_llm
import made_tokenizers

from deepinfer_core.api.errors import RequestError
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.engine.request import Request
from deepinfer_core.text.chat import AnswerReader, ChatFormat, read_conversation


class CommandLLM(fake_llm.FakeLLM):
    """Made as LLM is, and made so by commands."""

    tokenizer_of_all = made_tokenizers.byte_level()
    dies_after = None

    def __init__(self, model, **options):
        super().__init__(self.tokenizer_of_all, dies_after=self.dies_after)
        self.config = SimpleNamespace(model=model, **options)
        self.report = ("running on a stand-in",)
        self.asked = []

    def generate(self, prompts, params, on_text=None):
        texts = [
            Request(str(place), *((prompt, None) if isinstance(prompt, str) else (None, tuple(prompt))), chosen(params))
            for place, prompt in enumerate(prompts)
        ]
        outputs = [self._answer(request) for request in texts]
        if on_text is not None:
            for place, output in enumerate(outputs):
                for answer in output.outputs:
                    on_text(place, answer.index, answer.text[:4])
                    on_text(place, answer.index, answer.text[4:])
        return outputs

    def chat(self, messages, params=None, *, on_delta=None, **options):
        self.asked.append((messages, params, options))
        conversation = read_conversation({"messages": messages, **options})
        ids = ChatFormat(self.tokenizer).encode(conversation)
        if messages[-1]["content"] == fake_llm.TOO_LONG:
            raise RequestError("the prompt has too many tokens")
        text = f"thoughts</think>answer {len(messages)}"
        if on_delta is not None:
            reader = AnswerReader(conversation)
            for piece in (text[:4], text[4:20], text[20:]):
                on_delta(0, reader.push(piece))
            on_delta(0, reader.finish("stop")[0])
        answer = conversation.parse(text, "stop")
        return SimpleNamespace(output=self._answer(Request("0", None, ids, chosen(params))), answers=(answer,))


def chosen(params):
    return params if isinstance(params, SamplingParams) else SamplingParams.from_dict(params or {})
