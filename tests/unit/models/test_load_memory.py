"""Loading takes little more memory than the weights themselves, and the tables on disk take none of it."""

import json
import subprocess
import sys
from math import prod
from pathlib import Path

import pytest
from made_checkpoints import tiny_config, write_zeros

from deepinfer_core.loading.headers import ITEM_BYTES
from deepinfer_core.models.deepseek_v41.draft import describe_draft
from deepinfer_core.models.deepseek_v41.engram_tables import table_rows
from deepinfer_core.models.deepseek_v41.parse import parse_config
from deepinfer_core.models.deepseek_v41.plan import plan_layers
from deepinfer_core.models.deepseek_v41.sources import SpecSource
from deepinfer_core.models.deepseek_v41.weights import describe_model

STATUS = Path("/proc/self/status")

LOAD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from model_driver import load_model

def kib(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))

Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = kib("VmRSS")
model = load_model(Path(sys.argv[1]), True)
print((kib("VmHWM") - before) * 1024)
"""


def large_config():
    """About 90 MB of weights, most of them experts, and a table of about 80 MB."""
    config = tiny_config()
    text = config["text_config"]
    text.update(hidden_size=512, moe_intermediate_size=256, n_routed_experts=48, num_nextn_predict_layers=0)
    text.update(engram_layer_ids=[1], engram_vocab_size=400_000)
    text["engram_num_embeddings"] = list(table_rows(1, 3, 2, 400_000))
    return config


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, config = tmp_path_factory.mktemp("large"), large_config()
    parsed, source = parse_config(config), SpecSource()
    describe_model(source, parsed, plan_layers(parsed))
    describe_draft(source, parsed)
    shapes = [(spec.name, spec.dtypes[0], spec.shape) for spec in source.specs]
    write_zeros(folder / "model.safetensors", shapes, ITEM_BYTES)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "engram_token_map.json").write_text(json.dumps([token // 2 for token in range(512)]))
    sizes = {name: prod(shape) * ITEM_BYTES[dtype] for name, dtype, shape in shapes}
    return folder, sizes


@pytest.mark.skipif(not STATUS.is_file(), reason="peak memory is read from /proc")
def test_peak_memory_is_near_the_size_of_the_weights(folder):
    path, sizes = folder
    table = sizes["layers.1.engram.embed.weight"]
    weights = sum(sizes.values()) - table
    assert table > 70e6
    assert weights > 80e6
    tests = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", LOAD, path, tests], capture_output=True, text=True, check=True)
    assert 0.9 * weights < int(run.stdout) < 1.25 * weights
