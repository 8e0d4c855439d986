"""The report card as data, and how it is made from a run. How it looks is in `card_terminal.py` and `card_files.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from deepinfer_conformance import SUITE_VERSION, inventory
from deepinfer_conformance.claims import CLAIMS
from deepinfer_conformance.collection import Collection
from deepinfer_conformance.options import Options
from deepinfer_conformance.outcomes import Record, Results
from deepinfer_conformance.records import Noted, Value
from deepinfer_conformance.subject import Subject
from deepinfer_conformance.waivers import Waiver
from deepinfer_core.interfaces.backend import Capabilities
from deepinfer_core.plugin.version import INTERFACE

SLOWEST = 5  # tests that the card names


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tests of an area, or of a capability, ended how."""

    passed: int = 0
    failed: int = 0
    waived: int = 0
    not_claimed: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    """One line of the capability matrix: whether it is declared, and what the tests that require it say."""

    name: str
    declared: bool
    counts: Counts


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that keeps the backend from conforming: a test, or a fault of the run itself."""

    test: str
    message: str


@dataclass(frozen=True, slots=True)
class Waived:
    """A test that failed as its waiver foretold."""

    test: str
    kind: str
    reason: str
    link: str


@dataclass(frozen=True, slots=True)
class Card:
    """Everything that a run found out about a backend."""

    backend: str
    distribution: str  # name and version of what the backend's plugin was installed from
    devices: tuple[str, ...]
    reason: str  # the probe's sentence
    versions: Mapping[str, str]
    interface: int  # of the contract that the backend was written for
    suite: str
    core_interface: int
    level: str
    seed: int
    dtype: str | None
    areas: Mapping[str, Counts]
    capabilities: tuple[Claimed, ...]
    limits: Mapping[str, str]  # the declared numbers: slots, rows a step, block sizes
    determinism: int  # declared
    measured_determinism: int | None  # None: no test of it ran
    errors: Mapping[str, float]  # op -> its worst error in units of the reference's
    fallbacks: tuple[str, ...]
    left_out: Mapping[str, int]  # op -> its cases in formats that the backend does not claim
    failures: tuple[Failure, ...]
    waived: tuple[Waived, ...]
    timings: Mapping[str, float]
    slowest: Mapping[str, float]  # test -> seconds
    verdict: str
    exit_code: int


def make_card(
    options: Options,
    subject: Subject,
    results: Results,
    collection: Collection,
    waivers: tuple[Waiver, ...],
    broke_off: bool,
) -> Card:
    """The card of a finished run. With `broke_off` pytest ended before it had run all it should."""
    records = results.finished()
    unrun = len(collection.expected) - len(records)
    failures = (*_failures(results), *_unused(waivers, collection, results))
    complete = unrun == 0 and not broke_off
    verdict, code = _verdict(options, subject, failures, complete, collection, len(records))
    notes = [note for record in records for note in record.notes]
    determinism = [int(note.value) for note in notes if note.kind == "determinism"]
    capabilities = subject.capabilities
    return Card(
        backend=subject.name,
        distribution=_distribution(subject),
        devices=subject.probe.devices,
        reason=subject.probe.reason,
        versions={"deepinfer-core": _version("deepinfer-core"), **subject.probe.versions},
        interface=subject.backend.interface,
        suite=SUITE_VERSION,
        core_interface=INTERFACE,
        level=options.level.label,
        seed=options.seed,
        dtype=options.dtype,
        areas={area: _count(one for one in records if one.area == area) for area in _areas()},
        capabilities=tuple(_claimed(name, capabilities, records) for name in CLAIMS),
        limits=_limits(capabilities),
        determinism=int(capabilities.determinism),
        measured_determinism=min(determinism) if determinism else None,
        errors=_worst(notes, "error"),
        fallbacks=subject.fallbacks,
        left_out={note.key: len(str(note.value).splitlines()) for note in notes if note.kind == "left_out"},
        failures=failures,
        waived=tuple(_waived(record, waivers) for record in results.of("waived")),
        timings={note.key: float(note.value) for note in notes if note.kind == "timing"},
        slowest={one.test: round(one.seconds, 3) for one in sorted(records, key=lambda r: -r.seconds)[:SLOWEST]},
        verdict=verdict,
        exit_code=code,
    )


def _verdict(
    options: Options, subject: Subject, failures: tuple[Failure, ...], complete: bool, collection: Collection, ran: int
) -> tuple[str, int]:
    if failures:
        return f"DOES NOT CONFORM: {len(failures)} failure{'s' if len(failures) > 1 else ''}", 1
    if collection.narrowed:
        if not collection.expected:
            return "NO VERDICT: no standard test was chosen", 2
        return f"NO VERDICT: {ran} chosen tests passed; a verdict takes the whole suite", 0 if complete else 1
    if not complete:
        return f"NO VERDICT: the run ended after {ran} of {len(collection.expected)} tests", 1
    only = f", {options.dtype} alone" if options.dtype else ""
    return f"CONFORMS ({options.level.label}, interface {subject.backend.interface}{only})", 0


def _failures(results: Results) -> Iterable[Failure]:
    yield from (Failure(record.test, record.message) for record in results.of("fail"))
    yield from (Failure("collection", text) for text in results.broken)


def _unused(waivers: tuple[Waiver, ...], collection: Collection, results: Results) -> Iterable[Failure]:
    """Waivers that waived nothing. A waiver of tests that this run leaves out may be used at another level."""
    used = {record.waiver for record in results.records.values()}
    for waiver in waivers:
        named = {test for test in collection.known if waiver.matches(test)}
        if not named and not collection.narrowed:
            yield Failure("waivers", f"{waiver.tests!r} names no test of the suite: correct or remove the waiver")
        elif named & results.records.keys() and waiver.tests not in used:
            yield Failure("waivers", f"{waiver.tests!r} waives nothing: none of its tests fails; remove the waiver")


def _waived(record: Record, waivers: tuple[Waiver, ...]) -> Waived:
    waiver = next(one for one in waivers if one.tests == record.waiver)
    return Waived(record.test, waiver.kind, waiver.reason, waiver.link)


def _areas() -> list[str]:
    """Every area of the suite, also where none of its tests ran."""
    return sorted(name.removeprefix("test_").removesuffix(".py") for name in inventory.present())


def _count(records: Iterable[Record]) -> Counts:
    outcomes = [record.outcome for record in records]
    return Counts(*(outcomes.count(one) for one in ("pass", "fail", "waived", "not claimed")))


def _claimed(name: str, capabilities: Capabilities, records: list[Record]) -> Claimed:
    return Claimed(name, CLAIMS[name](capabilities), _count(one for one in records if name in one.capabilities))


def _limits(capabilities: Capabilities) -> dict[str, str]:
    return {
        "slots": str(capabilities.max_slots),
        "rows a step": str(capabilities.max_step_tokens),
        "block sizes": ", ".join(map(str, capabilities.block_sizes)),
    }


def _worst(notes: Iterable[Noted], kind: str) -> dict[str, float]:
    worst: dict[str, float] = {}
    for note in notes:
        if note.kind == kind:
            worst[note.key] = max(worst.get(note.key, 0.0), _number(note.value))
    return dict(sorted(worst.items()))


def _number(value: Value) -> float:
    return float(value)


def _distribution(subject: Subject) -> str:
    plugin = subject.plugins.registry.backends.plugin_of(subject.name)
    found = (one for one in subject.plugins.outcomes if one.plugin == plugin)
    return next((f"{one.distribution} {one.version}" for one in found), f"deepinfer-conformance {SUITE_VERSION}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"
