"""The report card in a file: JSON for programs, Markdown for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from deepinfer_conformance.card import Card
from deepinfer_conformance.card_terminal import HEADS, cells, determinism


def write_report(card: Card, path: Path) -> None:
    """Write the card in the format that the path's ending names."""
    text = to_json(card) if path.suffix == ".json" else render_markdown(card)
    path.write_text(text, encoding="utf-8")


def to_json(card: Card) -> str:
    """One object with the card's fields."""
    return json.dumps(asdict(card), indent=2) + "\n"


def render_markdown(card: Card) -> str:
    """A page: the verdict first, then what it rests on."""
    return "\n".join(_lines(card)) + "\n"


def _lines(card: Card) -> Iterator[str]:
    yield f"# Conformance of `{card.backend}`"
    yield f"\n**{card.verdict}**\n"
    yield from _table(("", ""), list(_facts(card)))
    yield "\n## Areas\n"
    yield from _table(("area", *HEADS), [(name, *cells(counts)) for name, counts in card.areas.items()])
    yield "\n## Capabilities\n"
    rows = [(f"`{one.name}`", "yes" if one.declared else "no", *cells(one.counts)) for one in card.capabilities]
    yield from _table(("capability", "declared", *HEADS), rows)
    if card.errors:
        yield "\n## Errors\n\nThe worst error of each op, in units of the reference's own error in the same dtype.\n"
        yield from _table(("op", "error"), [(f"`{op}`", f"{error:.2f}") for op, error in card.errors.items()])
    if card.failures:
        yield "\n## Failures\n"
        yield from (f"- `{one.test}`\n\n  ```\n{_indented(one.message)}\n  ```" for one in card.failures)
    if card.waived:
        yield "\n## Waived\n"
        waived = [(f"`{one.test}`", one.kind, one.reason, one.link) for one in card.waived]
        yield from _table(("test", "kind", "reason", "link"), waived)
    if card.timings:
        yield "\n## Timings\n\nRecorded, never graded.\n"
        yield from _table(("what", "value"), [(name, f"{value:.4g}") for name, value in card.timings.items()])


def _facts(card: Card) -> Iterator[tuple[str, str]]:
    yield "backend", f"{card.backend} ({card.distribution}), interface {card.interface}"
    yield "device", f"{', '.join(card.devices) or 'unnamed'}; {card.reason}"
    yield "versions", ", ".join(f"{name} {number}" for name, number in card.versions.items())
    yield "suite", f"{card.suite}, interface {card.core_interface}, level {card.level}, seed {card.seed}"
    yield "determinism", determinism(card)
    yield from card.limits.items()
    yield "ops on their reference", ", ".join(card.fallbacks) or "none"
    if card.left_out:
        yield "cases of unclaimed formats", ", ".join(f"{op} {count}" for op, count in card.left_out.items())


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield _row(heads)
    yield "|" + "---|" * len(heads)
    yield from map(_row, rows)


def _row(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
