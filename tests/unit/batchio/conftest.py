"""Files for batch runs."""

import pytest
from batch_bench import Bench


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def new_bench(tmp_path_factory):
    """For tests that need a fresh pair of files for each example."""
    return lambda: Bench(tmp_path_factory.mktemp("run"))
