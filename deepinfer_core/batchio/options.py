"""How a batch run is to be done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """`settings` and `identity` go into the manifest: whatever besides the input the answers depend on. `identity` is
    called when the input has been found valid and before anything is written: it may read a model's folder."""

    model: str  # the name that responses carry
    settings: Mapping[str, Any] = field(default_factory=dict)
    identity: Callable[[], Mapping[str, Any]] = dict
    versions: Mapping[str, str] = field(default_factory=dict)  # of packages; another one is told, not refused
    defaults: Mapping[str, Any] = field(default_factory=dict)  # sampling parameters of requests without them
    seed: int | None = None  # from which requests without a seed get theirs; None: the system's randomness
    order: Literal["input", "completion"] = "input"
    resume: bool = False
    retry_failed: bool = False  # resume, and answer again what has an error for a record
    overwrite: bool = False

    @property
    def continues(self) -> bool:
        return self.resume or self.retry_failed
