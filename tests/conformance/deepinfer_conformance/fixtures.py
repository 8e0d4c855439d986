"""The fixtures of the areas. Registered with pytest by `plugin.py` when there is a backend to test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from deepinfer_conformance.records import Note, make_note
from deepinfer_conformance.run import RUN
from deepinfer_conformance.subject import Subject
from deepinfer_conformance.tiny import data_folder
from deepinfer_core import LLM
from deepinfer_core.ops.table import OpTable


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Subject:
    """The backend under test, open."""
    return request.config.stash[RUN].subject


@pytest.fixture(scope="session")
def device(subject: Subject) -> torch.device:
    """The torch device of the backend."""
    return subject.torch_device


@pytest.fixture(scope="session")
def ops(subject: Subject) -> OpTable:
    """The backend's kernels, with references where it has none. Run them with `subject.run`."""
    return subject.ops


@pytest.fixture(scope="session")
def reference() -> OpTable:
    """The references, for inputs on the host."""
    return OpTable({})


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of every random input."""
    return request.config.stash[RUN].options.seed


@pytest.fixture(scope="session")
def dtype(request: pytest.FixtureRequest, subject: Subject) -> str:
    """The dtype of the engine: the one asked for, or the first that the backend claims."""
    return request.config.stash[RUN].options.dtype or subject.capabilities.dtypes[0]


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    """Notes something for the report card: `note(kind, key, value)`, kinds as in `records.py`."""
    return make_note(request.node.user_properties)


@pytest.fixture(scope="session")
def tiny() -> Path:
    """The folder of the tiny checkpoint; its goldens lie beside it."""
    return data_folder() / "tiny_v41"


@pytest.fixture
def llm(subject: Subject, tiny: Path, dtype: str) -> Iterator[Callable[..., LLM]]:
    """Makes models on the backend, the tiny checkpoint unless told otherwise, and closes them after the test."""
    with ExitStack() as stack:

        def make(**options: Any) -> LLM:
            chosen = {"model": str(tiny), "dtype": dtype, **options}
            return stack.enter_context(subject.llm(**chosen))

        yield make
