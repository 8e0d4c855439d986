"""Parameters of standard tests that stand for capabilities: those that a backend does not claim are not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deepinfer_conformance.options import DTYPES
from deepinfer_core.interfaces.ops import RowFormat

Test = Callable[..., Any]


def every_dtype(test: Test) -> Test:
    """`op_dtype`: each dtype that an op may be asked to compute in."""
    params = [pytest.param(name, id=name, marks=pytest.mark.capability(f"dtype.{name}")) for name in DTYPES]
    return pytest.mark.parametrize("op_dtype", params)(test)


def cached(*formats: RowFormat) -> Any:
    """A parameter: the format, or the tuple of formats, of caches."""
    claims = pytest.mark.capability(*(f"cache.{one.value}" for one in formats))
    value = formats[0] if len(formats) == 1 else formats
    return pytest.param(value, id="/".join(dict.fromkeys(one.value for one in formats)), marks=claims)
