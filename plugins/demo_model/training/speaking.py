"""The engine as the one that speaks: continuations of prompts given as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from deepinfer_core import LLM, SamplingParams
from training.corpus import prompt_of
from training.tokens import encode


def said(
    llm: LLM, prompts: Sequence[Sequence[int]], longest: int, temperature: float = 0.0, seed: int = 0
) -> list[list[int]]:
    """What the model says after each prompt, at most `longest` tokens, an end of sentence included."""
    params = SamplingParams(max_tokens=longest, temperature=temperature, seed=seed)
    outputs = llm.generate([list(prompt) for prompt in prompts], params)
    for output in outputs:
        if output.error is not None:
            raise output.error
    return [list(output.outputs[0].token_ids) for output in outputs]


def greedy_answers(llm: LLM, tokenizer: Tokenizer, documents: Sequence[str], longest: int) -> list[tuple[str, str]]:
    """(the model's likeliest answer, the document's own) of each chat document."""
    prompts = [[0, *tokenizer.encode(prompt_of(document)[0]).ids] for document in documents]
    answers = said(llm, prompts, longest)
    return [(tokenizer.decode(ids), prompt_of(document)[1]) for ids, document in zip(answers, documents, strict=True)]


def prefill_agreement(folder: Path, tokenizer: Tokenizer, documents: Sequence[str], prompt: int, count: int) -> float:
    """Share of the first `count` greedy tokens that are the same with bounded and with exact prefill.

    Prompts are the documents' first `prompt` tokens; after the first different token the rest counts as different.
    """
    prompts = [ids[:prompt] for ids in encode(tokenizer, documents) if len(ids) > prompt]
    texts = []
    for mode in ("exact", "bounded"):
        with LLM(str(folder), prefill=mode) as llm:
            texts.append(said(llm, prompts, count))
    same = 0
    for exact, bounded in zip(*texts, strict=True):
        for one, other in zip(exact, bounded, strict=False):
            if one != other:
                break
            same += 1
    return same / sum(len(exact) for exact in texts[0])
