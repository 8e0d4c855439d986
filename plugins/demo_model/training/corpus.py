"""The training and validation text: documents in xz files, their kinds, and chat documents in the engine's format."""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable
from pathlib import Path

SEPARATOR = "\n<|endoftext|>\n"
VALIDATION = "validation.txt.xz"
KINDS = ("prose", "maths", "json", "reason", "docs", "glosses")

USER, ASSISTANT, END = "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"
GLOSS = re.compile(r"^.{1,60} \((noun|verb|adjective|adverb)\): ", re.MULTILINE)
REFERENCE = re.compile(r"^(={4,}|-{4,}|\*{4,}|\.\. \w|   \S.*\(\*?\w)|>>> ", re.MULTILINE)


def read_documents(path: Path) -> list[str]:
    """The documents of one file, without empty ones."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [document.strip("\n") for document in file.read().split(SEPARATOR) if document.strip()]


def training_files(folder: Path) -> list[Path]:
    """Every text file of `folder` but the held-out one, in the order of their names."""
    return [path for path in sorted(folder.glob("*.txt.xz")) if path.name != VALIDATION]


def training_documents(folder: Path, limit: int | None = None) -> list[str]:
    """The documents of all training files, the first `limit` of each."""
    return [document for path in training_files(folder) for document in read_documents(path)[:limit]]


def kind_of(document: str) -> str:
    """The kind of a held-out document, told from its text: one of KINDS."""
    if document.startswith(USER):
        question, _, answer = document.partition(ASSISTANT)
        if "JSON" in question[:40]:
            return "json"
        return "maths" if "The answer is " in answer else "reason"
    if len(GLOSS.findall(document)) > 3:
        return "glosses"
    return "docs" if len(REFERENCE.findall(document)) > 3 else "prose"


def by_kind(documents: Iterable[str]) -> dict[str, list[str]]:
    """Documents sorted into KINDS, each in the given order."""
    sorted_documents: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for document in documents:
        sorted_documents[kind_of(document)].append(document)
    return sorted_documents


def rendered(document: str) -> str:
    """The document as the model sees it: without a thinking part, answers begin after a closing `</think>`."""
    return document.replace(ASSISTANT, ASSISTANT + "</think>")


def prompt_of(document: str) -> tuple[str, str]:
    """(prompt up to where the model answers, the document's own answer) of a chat document."""
    question, _, answer = document.partition(ASSISTANT)
    return rendered(question + ASSISTANT), answer.removesuffix(END)
