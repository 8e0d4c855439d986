"""Judging answers to held-out questions: JSON that parses and copies its facts, and exact results."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

RESULT = re.compile(r"The answer is (.*?)\.?$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JsonScore:
    """Shares of answers, and of facts over all answers."""

    answers: int
    parsed: float
    whole: float  # answers equal to the expected object
    facts: float  # values equal to the expected ones


def json_score(answers: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """JsonScore of (answer, expected) pairs, as a dictionary."""
    parsed = whole = facts = right = 0
    for answer, expected in answers:
        wanted = json.loads(expected)
        facts += len(wanted)
        try:
            got = json.loads(answer)
        except ValueError:
            continue
        parsed += 1
        whole += got == wanted
        right += sum(isinstance(got, dict) and got.get(key) == value for key, value in wanted.items())
    count = len(answers)
    return asdict(JsonScore(count, parsed / count, whole / count, right / facts))


def exact_share(answers: Sequence[tuple[str, str]]) -> float:
    """Share of answers whose result is the expected one; of a worked answer the result is at its end."""
    return sum(_result(answer) == _result(expected) for answer, expected in answers) / len(answers)


def _result(answer: str) -> str:
    found = RESULT.search(answer)
    return (found[1] if found else answer).strip()
