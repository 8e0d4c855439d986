"""`deepinfer doctor`: shows what `diagnosis.py` found, for people or as JSON."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from deepinfer_core.cli.diagnosis import Diagnosis, diagnose

HELP = "check the installation: versions, plugins, backends, and one computation on the chosen device"

GIB = 1 << 30


def configure(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--backend", metavar="NAME", help="look at this backend instead of the one that would be chosen"
    )
    parser.add_argument("--strict", action="store_true", help="count every warning as an error")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    """0 when nothing is wrong (warnings aside), 2 for an error, 3 when the device fails or computes wrong numbers."""
    found = diagnose(args.backend, args.strict)
    code = 3 if found.device_failed else 2 if found.errors else 0
    if args.json:
        print(json.dumps(found.facts | {"errors": found.errors, "warnings": found.warnings, "ok": code == 0}, indent=2))
    else:
        print("\n".join(_lines(found)))
    return code


def _lines(found: Diagnosis) -> Iterator[str]:
    facts = found.facts
    packages = facts["packages"]
    yield f"DeepInfer {packages['deepinfer-core'] or '(not installed)'}, plugin interface {facts['interface']}"
    yield f"  python {facts['system']['python']} on {facts['system']['platform']}"
    yield "  " + ", ".join(f"{name} {number}" for name, number in packages.items() if number)
    yield from _build(facts["build"])
    yield from _settings(facts["environment"])
    yield from _plugins(facts["plugins"], facts["reports"])
    yield "backends"
    for one in facts["backends"]:
        yield f"  {one['name']}: {'available' if one['available'] else 'not available'}; {one['reason']}"
    yield from _device(facts)
    yield from (f"warning: {line}" for line in found.warnings)
    yield from (f"error: {line}" for line in found.errors)
    yield f"not ready: {len(found.errors)} to repair" if found.errors else "ready"


def _build(build: dict[str, Any]) -> Iterator[str]:
    record = build["record"]
    if isinstance(record, dict):
        yield f"  built for {record.get('backend')}, recorded in {build['path']}"
    else:
        yield f"  no build record in {build['path']}"


def _settings(environment: dict[str, Any]) -> Iterator[str]:
    """The settings that came from DEEPINFER_* variables."""
    values = {name: value for name, value in environment.items() if value and name != "unknown"}
    yield "environment: " + ", ".join(f"{name} = {value}" for name, value in values.items())


def _plugins(plugins: list[dict[str, Any]], reports: dict[str, dict[str, str]]) -> Iterator[str]:
    yield "plugins"
    for one in plugins:
        what = ", ".join(one["provides"]) if one["status"] == "loaded" else one["reason"]
        origin = f"{one['distribution']} {one['version']}".strip()
        if one["built_for"] is not None:
            origin += f", interface {one['built_for']}"
        yield f"  {one['plugin']} ({origin}) {one['status']}: {what or 'provides nothing'}"
        yield from (f"    {name}: {value}" for name, value in reports.get(one["plugin"], {}).items())


def _device(facts: dict[str, Any]) -> Iterator[str]:
    if "chosen" in facts:
        yield "chosen"
        yield from (f"  {line}" for line in facts["chosen"]["why"])
    if "device" in facts:
        device = facts["device"]
        memory = device["memory"]
        yield f"  memory: {memory['free'] / GIB:.1f} of {memory['total'] / GIB:.1f} GiB free"
        yield f"  determinism: {device['determinism']}"
    if "check" in facts:
        agreed = ", ".join(f"{name} {count}" for name, count in facts["check"].items())
        yield f"  cases that agree with the reference: {agreed}"
