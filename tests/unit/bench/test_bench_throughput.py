"""What decoding is measured from: full steps only, and a clear word when there were none."""

import pytest

from deepinfer_core.api.config import EngineConfig
from deepinfer_core.api.errors import ConfigError
from deepinfer_core.bench.ops import measure_ops
from deepinfer_core.bench.throughput import measure_throughput

TINY = "tests/data/tiny_v41"


@pytest.fixture
def config(request: pytest.FixtureRequest) -> EngineConfig:
    return EngineConfig(model=str(request.config.rootpath / TINY), cache_tokens=4096)


def test_full_steps_are_counted_and_their_weights_read(config):
    (two,) = measure_throughput(config, [2], prompt_tokens=8, new_tokens=20)
    assert two.batch == 2
    assert two.steps > 0
    assert 0 < two.kernels < two.step
    assert 500_000 < two.weight_bytes < 3_954_500  # less than the whole file: some experts, a few table rows


def test_too_few_answer_tokens_leave_nothing_to_count(config):
    with pytest.raises(ConfigError, match="answer tokens"):
        measure_throughput(config, [1], prompt_tokens=8, new_tokens=2)


def test_the_ops_of_one_decode_step_are_replayed(config):
    times = {time.name: time for time in measure_ops(config, 3)}
    assert {"linear", "experts", "sparse_attention", "lm_head", "sample_tokens"} <= set(times)
    assert times["lm_head"].calls == 1
    assert times["lm_head"].shape.startswith("3x")
    assert times["lm_head"].torch_product > 0
