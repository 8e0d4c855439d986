"""What a run was asked, kept beside its output, so that only the same run is resumed."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepinfer_core.api.errors import InputFileError
from deepinfer_core.batchio.recordfile import sync_folder

FORMAT = 2


@dataclass(frozen=True, slots=True)
class Manifest:
    """`settings` is all that answers depend on besides the input: the model, engine options, default parameters."""

    input_sha256: str
    input_bytes: int
    requests: int
    order: str
    settings: Mapping[str, Any]
    versions: Mapping[str, str]  # of packages: told when they change, for they should change no answer
    created: int  # Unix time at which the run first started
    seed: int  # from which requests without a seed get theirs
    format: int = FORMAT

    def save(self, path: Path) -> None:
        """Write whole or not at all. Raises `InputFileError`."""
        part = path.with_name(path.name + ".part")
        try:
            with part.open("w", encoding="utf-8") as file:
                json.dump(dataclasses.asdict(self), file, indent=2, sort_keys=True)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            raise InputFileError(f"{path} cannot be written: {error.strerror}") from error

    @classmethod
    def load(cls, path: Path) -> Manifest | None:
        """The manifest at `path`, None when there is none. Raises `InputFileError` when it cannot be used."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["format"] != FORMAT:
                raise InputFileError(
                    f"{path} has format {found['format']} and this version reads {FORMAT}: go on with the version that "
                    "began the run, or start again with --overwrite"
                )
            return cls(**found)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputFileError(f"{path} is not a run's manifest: {error}; start again with --overwrite") from error

    def differences(self, earlier: Manifest) -> list[str]:
        """`name: then, now` of whatever besides the input would make the rest of the answers another run's."""
        then = {"order": earlier.order, **earlier.settings}
        now = {"order": self.order, **_plain(self.settings)}
        names = sorted(then.keys() | now.keys())
        return [
            f"{name}: {then.get(name)!r} then, {now.get(name)!r} now"
            for name in names
            if then.get(name) != now.get(name)
        ]


def manifest_path(output: Path) -> Path:
    """The manifest of an output file."""
    return output.with_name(output.name + ".manifest.json")


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As they come back from a file: tuples are lists there."""
    found: dict[str, Any] = json.loads(json.dumps(dict(settings)))
    return found
