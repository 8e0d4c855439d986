"""Output records: OpenAI's response shapes for completions and chats, and one shape for every error."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deepinfer_core.api.errors import DeepInferError
from deepinfer_core.api.outputs import CompletionOutput, Logprob, RequestOutput, TokenLogprobs
from deepinfer_core.text.chat import ChatAnswer, Conversation
from deepinfer_core.text.detokenize import Detokenizer
from deepinfer_core.text.tokenizer import Tokenizer

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a request its response depends on."""

    line: int  # where it stands in the file, from 1
    custom_id: str
    conversation: Conversation | None = None  # None: a plain completion
    return_token_ids: bool = False
    skip_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class Answerer:
    """What all responses of a run share."""

    model: str
    created: int  # Unix time, the run's own, so that a resumed run's records do not differ from an unbroken one's
    tokenizer: Tokenizer | None  # None: answers are ids

    def record(self, asked: Asked, output: RequestOutput) -> Record:
        """The record of one finished request."""
        if output.error is not None:
            return error_record(asked.line, asked.custom_id, output.error)
        request = record_id(asked.line)
        response = {"status_code": 200, "request_id": request, "body": self.body(asked, output)}
        return {"id": request, "custom_id": asked.custom_id, "response": response, "error": None}

    def body(self, asked: Asked, output: RequestOutput) -> Record:
        """An OpenAI response body, with `seed` and, where there is something to say, `warnings` beside."""
        chat = asked.conversation is not None
        body: Record = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{asked.line}",
            "object": "chat.completion" if chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [self._choice(asked, answer) for answer in output.outputs],
            "usage": _usage(output),
            "seed": output.seed,
            "prefill": output.prefill,
        }
        if output.replay is not None:
            body["replay"] = output.replay
        if output.prompt_logprobs is not None:
            body["prompt_logprobs"] = [None if token is None else _with_rank(token) for token in output.prompt_logprobs]
        if output.warnings:
            body["warnings"] = list(output.warnings)
        return body

    def _choice(self, asked: Asked, answer: CompletionOutput) -> Record:
        choice: Record = {"index": answer.index}
        if asked.conversation is None:
            choice["text"] = answer.text
            choice["finish_reason"] = answer.finish_reason
            choice["logprobs"] = None if answer.logprobs is None else self._logprobs(asked, answer.logprobs)
        else:
            cut: Literal["stop", "length"] = "stop" if answer.finish_reason == "stop" else "length"
            parsed = asked.conversation.parse(answer.text, cut)
            ended = answer.finish_reason in ("stop", "length")
            choice["message"] = _message(parsed, f"{asked.line}-{answer.index}")
            choice["finish_reason"] = parsed.finish_reason if ended else answer.finish_reason
            choice["logprobs"] = None if answer.logprobs is None else self._chat_logprobs(answer.logprobs)
        choice["stop_reason"] = answer.stop_reason
        if asked.return_token_ids or self.tokenizer is None:
            choice["token_ids"] = list(answer.token_ids)
        return choice

    def _logprobs(self, asked: Asked, tokens: Sequence[TokenLogprobs]) -> Record:
        return {
            "tokens": [token.chosen.text for token in tokens],
            "token_logprobs": [_number(token.chosen.logprob) for token in tokens],
            "top_logprobs": [_by_text(token.top) for token in tokens],
            "text_offset": self._offsets(asked, tokens),
        }

    def _offsets(self, asked: Asked, tokens: Sequence[TokenLogprobs]) -> list[int]:
        """For each token, the complete characters of the answer that come before it."""
        if self.tokenizer is None:
            return [0] * len(tokens)
        detokenizer = Detokenizer(self.tokenizer, asked.skip_special_tokens)
        lengths = (len(detokenizer.push([token.chosen.token_id])) for token in tokens)
        return list(itertools.accumulate(lengths, initial=0))[:-1]

    def _chat_logprobs(self, tokens: Sequence[TokenLogprobs]) -> Record:
        return {
            "content": [
                self._entry(token.chosen) | {"top_logprobs": [self._entry(other) for other in _finite(token.top)]}
                for token in tokens
            ]
        }

    def _entry(self, token: Logprob) -> Record:
        own = b"" if self.tokenizer is None else self.tokenizer.token_bytes(token.token_id)
        return {"token": token.text, "logprob": _number(token.logprob), "bytes": list(own)}


def record_id(line: int) -> str:
    """The id of a line's record, by which a resumed run knows that the line is done."""
    return f"line-{line}"


def line_of(record: object) -> int | None:
    """The inverse: the line that a record answers, or None when it is no record of ours."""
    name = record.get("id") if isinstance(record, dict) else None
    if not isinstance(name, str) or not name.startswith("line-"):
        return None
    number = name.removeprefix("line-")
    return int(number) if number.isdecimal() and len(number) < 19 else None


def error_record(line: int, custom_id: str | None, error: DeepInferError) -> Record:
    """The record of a line that could not be answered."""
    found = {"code": error.code, "message": str(error), "line": line}
    return {"id": record_id(line), "custom_id": custom_id, "response": None, "error": found}


def _usage(output: RequestOutput) -> Record:
    prompt = len(output.prompt_token_ids)
    completion = sum(len(answer.token_ids) for answer in output.outputs)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": output.num_cached_tokens},
    }


def _message(answer: ChatAnswer, name: str) -> Record:
    message: Record = {"role": "assistant", "content": answer.content}
    if answer.reasoning is not None:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = [
            {
                "id": f"call-{name}-{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(answer.tool_calls)
        ]
    return message


def _by_text(top: Sequence[Logprob]) -> dict[str, float]:
    """Alternatives by their text; by id where another of the same text is likelier."""
    found: dict[str, float] = {}
    for token in _finite(top):
        name = token.text if token.text not in found else f"token_id:{token.token_id}"
        found[name] = token.logprob
    return found


def _with_rank(token: TokenLogprobs) -> Record:
    return _ranked(token.chosen) | {"top": [_ranked(other) for other in _finite(token.top)]}


def _ranked(token: Logprob) -> Record:
    return {
        "token_id": token.token_id,
        "token": token.text,
        "logprob": _number(token.logprob),
        "rank": token.rank,
    }


def _finite(tokens: Sequence[Logprob]) -> list[Logprob]:
    """Without those that could not have been drawn: JSON has no number for their logprob."""
    return [token for token in tokens if math.isfinite(token.logprob)]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
