"""What a model expects of a checkpoint's tensors, compared with what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deepinfer_core.api.errors import nearest
from deepinfer_core.loading.faults import Faults
from deepinfer_core.loading.index import Checkpoint


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that a model needs: its name, its shape and the dtypes that it may be stored in."""

    name: str
    shape: tuple[int, ...]
    dtypes: tuple[str, ...]


def compare_tensors(checkpoint: Checkpoint, specs: Iterable[TensorSpec], unread: Callable[[str], bool]) -> None:
    """Every spec must be met, and every tensor must have a spec or be `unread` by name: known and not loaded.

    Raises `CheckpointError` listing each missing, extra, wrongly shaped and wrongly typed tensor.
    """
    faults = Faults(f"the weights in {checkpoint.folder} are not those that its config.json describes")
    expected = {spec.name: spec for spec in specs}
    extra = [name for name in checkpoint.tensors if name not in expected and not unread(name)]
    for spec in expected.values():
        _compare(checkpoint, spec, extra, faults)
    for name in sorted(extra):
        faults.add(f"{name} is extra: the model has no such tensor ({checkpoint.tensors[name].shard.name})")
    faults.raise_any("Compare config.json with the weights: they must come from the same release of the model.")


def _compare(checkpoint: Checkpoint, spec: TensorSpec, extra: list[str], faults: Faults) -> None:
    entry = checkpoint.tensors.get(spec.name)
    if entry is None:
        # The nearest name helps a person; among thousands of missing tensors it would take minutes to find.
        hint = nearest(spec.name, extra) if len(extra) <= 32 and len(faults) < 32 else ""
        faults.add(f"{spec.name} is missing{hint}")
        return
    if entry.shape != spec.shape:
        faults.add(f"{spec.name} has shape {list(entry.shape)} and must have {list(spec.shape)} ({entry.shard.name})")
    if entry.dtype not in spec.dtypes:
        faults.add(f"{spec.name} has dtype {entry.dtype} and must have {' or '.join(spec.dtypes)} ({entry.shard.name})")
