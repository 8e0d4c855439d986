"""How far a result may be from what it should be. Yardsticks:

- `elementwise`: each number against the reference, within the op's tolerance;
- `Errors`: the size of an op's errors against float64, in units of those that the reference itself makes in the same
  dtype; a backend may make twice those.

Where a result is random, the sampler area compares distributions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import Tolerance

MOST = 2.0  # times the reference's error
_FLOOR = 0.5  # of the dtype's spacing: what counts as the reference's error where that is less


def elementwise(actual: Sequence[Tensor], wanted: Sequence[Tensor], tolerance: Tolerance, slack: float = 0.0) -> str:
    """What is wrong with the results, in words; empty when nothing is. `slack` adds to the absolute tolerance.

    NaN must stand where NaN stands; shapes and dtypes must be the same.
    """
    if len(actual) != len(wanted):
        return f"gives {len(actual)} tensors, not {len(wanted)}"
    for number, (one, other) in enumerate(zip(actual, wanted, strict=True)):
        place = f"result {number}: " if len(wanted) > 1 else ""
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{place}is {_kind(one)}, not {_kind(other)}"
        try:
            torch.testing.assert_close(
                one, other, atol=tolerance.absolute + slack, rtol=tolerance.relative, equal_nan=True
            )
        except AssertionError as error:
            return place + " ".join(str(error).split())
    return ""


@dataclass(slots=True)
class Errors:
    """The errors of an op over its cases, which count alike whatever their sizes: one small case proves little.

    An error is a root mean square distance from float64, over that of the float64 numbers themselves.
    """

    _squares: list[float] = field(default_factory=list)
    _units: list[float] = field(default_factory=list)

    def add(self, actual: Tensor, reference: Tensor, exact: Tensor) -> float:
        """Take in a result; gives its error in units of the reference's. 0 where nothing is finite.

        A reference closer than half a spacing of the result's dtype counts as that far.
        """
        finite = exact.isfinite() & reference.isfinite()
        if not finite.any():
            return 0.0
        wanted = exact[finite]
        scale = max(_rms(wanted), torch.finfo(torch.float32).tiny)
        floor = _FLOOR * torch.finfo(actual.dtype).eps
        error = _rms(actual[finite].double() - wanted) / scale
        unit = max(_rms(reference[finite].double() - wanted) / scale, floor)
        self._squares.append(error**2)
        self._units.append(unit**2)
        return error / unit

    @property
    def ratio(self) -> float:
        """All errors together in units of the reference's; 0 where there were none to measure."""
        return math.sqrt(sum(self._squares) / sum(self._units)) if self._units else 0.0


def _rms(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


def _kind(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}"
