"""The report card as it is printed at the end of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from deepinfer_conformance.card import Card, Counts

HEADS = ("pass", "fail", "waived", "not claimed")
WORST = 6  # ops whose error is printed


def render_terminal(card: Card) -> str:
    """Plain text, a fact a line; the verdict is the last."""
    return "\n".join(_lines(card))


def cells(counts: Counts) -> tuple[str, ...]:
    """The four numbers, in the order of HEADS."""
    return tuple(map(str, (counts.passed, counts.failed, counts.waived, counts.not_claimed)))


def determinism(card: Card) -> str:
    """Declared and measured level."""
    measured = "not measured" if card.measured_determinism is None else f"measured D{card.measured_determinism}"
    return f"declared D{card.determinism}, {measured}"


def _lines(card: Card) -> Iterator[str]:
    yield f"backend      {card.backend} ({card.distribution}), interface {card.interface}"
    yield f"device       {', '.join(card.devices) or 'unnamed'}; {card.reason}"
    yield f"versions     {', '.join(f'{name} {number}' for name, number in card.versions.items())}"
    yield f"suite        {card.suite}, interface {card.core_interface}, level {card.level}, seed {card.seed}"
    yield f"determinism  {determinism(card)}"
    yield f"limits       {'; '.join(f'{name}: {text}' for name, text in card.limits.items())}"
    yield f"references   {', '.join(card.fallbacks) or 'none: every op has a kernel'}"
    if card.left_out:
        yield f"left out     cases of unclaimed formats: {_pairs(card.left_out.items())}"
    yield ""
    yield from _table(("area", *HEADS), [(name, *cells(counts)) for name, counts in card.areas.items()])
    yield ""
    rows = [(one.name, "yes" if one.declared else "no", *cells(one.counts)) for one in card.capabilities]
    yield from _table(("capability", "declared", *HEADS), rows)
    if card.errors:
        worst = sorted(card.errors.items(), key=lambda pair: -pair[1])[:WORST]
        yield ""
        yield f"worst errors, in units of the reference's own: {_pairs((op, f'{error:.2f}') for op, error in worst)}"
    if card.timings:
        yield f"timings (not graded): {_pairs((name, f'{value:.4g}') for name, value in card.timings.items())}"
    yield ""
    yield from (f"waived: {one.test} ({one.kind}: {one.reason}; {one.link})" for one in card.waived)
    yield from (f"failed: {one.test}: {_first_line(one.message)}" for one in card.failures)
    yield card.verdict


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        first, *others = (cell.ljust(widths[0]) if n == 0 else cell.rjust(widths[n]) for n, cell in enumerate(row))
        yield "  ".join([first, *others])


def _pairs(items: Iterable[tuple[str, object]]) -> str:
    return ", ".join(f"{name} {value}" for name, value in items)


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0][:200]
