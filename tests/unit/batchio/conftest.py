"""Files for batch runs."""

import os

import pytest
from batch_bench import Bench


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def instant_disk(monkeypatch):
    """Without waiting for the disk: for tests of what is in the files."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def new_bench(tmp_path_factory):
    """For tests that need a fresh pair of files for each example."""
    return lambda: Bench(tmp_path_factory.mktemp("run"))
