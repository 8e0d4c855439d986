"""Collects everything that is wrong with a checkpoint, so that one error can list it all."""

from __future__ import annotations

from deepinfer_core.api.errors import CheckpointError

MAX_LISTED = 40


class Faults:
    """Faults of one folder, in the order in which they were found."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._found: list[str] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, fault: str) -> None:
        self._found.append(fault)

    def raise_any(self, advice: str) -> None:
        """Raise one `CheckpointError` that lists the faults and ends in `advice`. Nothing happens without faults."""
        if not self._found:
            return
        lines = [f"  - {fault}" for fault in self._found[:MAX_LISTED]]
        if len(self._found) > MAX_LISTED:
            lines.append(f"  ... and {len(self._found) - MAX_LISTED} more")
        count = "1 fault" if len(self._found) == 1 else f"{len(self._found)} faults"
        raise CheckpointError("\n".join([f"{self._subject}: {count}", *lines, advice]))
