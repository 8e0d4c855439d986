import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from deepinfer_core.api.errors import CheckpointError
from deepinfer_core.loading.faults import Faults
from deepinfer_core.loading.headers import read_header

GOOD = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "F8_E4M3", "shape": [5], "data_offsets": [24, 29]},
    "empty": {"dtype": "BF16", "shape": [0, 7], "data_offsets": [29, 29]},
}


def file_bytes(header, data=29):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(data)


def read(tmp_path, content):
    """(entries, what is wrong) of a shard with this content."""
    shard = tmp_path / "model-00001-of-00002.safetensors"
    shard.write_bytes(content)
    faults = Faults("the weights")
    entries = read_header(shard, faults)
    try:
        faults.raise_any("")
    except CheckpointError as error:
        return entries, str(error)
    return entries, ""


def test_a_good_header(tmp_path):
    content = file_bytes(GOOD)
    entries, wrong = read(tmp_path, content)
    assert wrong == ""
    assert {name: (e.dtype, e.shape, e.nbytes) for name, e in entries.items()} == {
        "a": ("F32", (2, 3), 24),
        "b": ("F8_E4M3", (5,), 5),
        "empty": ("BF16", (0, 7), 0),
    }
    assert entries["b"].end == len(content)


@pytest.mark.parametrize("metadata", [{}, {"format": "pt"}])
def test_metadata_is_no_tensor(tmp_path, metadata):
    entries, wrong = read(tmp_path, file_bytes({"__metadata__": metadata, **GOOD}))
    assert wrong == ""
    assert entries.keys() == GOOD.keys()


def changed(name, **fields):
    return {**GOOD, name: {**GOOD[name], **fields}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes are too few"),
        (bytes(7), "7 bytes are too few"),
        ((1 << 40).to_bytes(8, "little") + bytes(50), "its header should have 1099511627776 bytes and the file has 58"),
        (file_bytes(b"{"), "not JSON"),
        (file_bytes(b"\xff\xfe{}"), "not JSON"),
        (file_bytes(b"[" * 100_000), "not JSON"),
        (file_bytes(b"[1]"), "not a JSON object"),
        (file_bytes(b'{"a": 1}'), "a needs a dtype, a shape and two data_offsets"),
        (file_bytes(b'{"a": {"dtype": "F32", "shape": 3, "data_offsets": [0, 12]}}'), "a needs a dtype"),
        (file_bytes(b'{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 1, 2]}}'), "a needs a dtype"),
        (file_bytes(changed("a", dtype="F33")), "a has the unknown dtype 'F33'"),
        (file_bytes(changed("a", dtype=["F32"])), "a has the unknown dtype"),
        (file_bytes(changed("a", shape=[2, -3])), "whole numbers from 0"),
        (file_bytes(changed("a", shape=[2, 3.0])), "whole numbers from 0"),
        (file_bytes(changed("a", shape=[True, 6])), "whole numbers from 0"),
        (file_bytes(changed("a", data_offsets=[-1, 23])), "whole numbers from 0"),
        (file_bytes(changed("a", shape=[2, 4])), "a (F32 [2, 4]) needs 32 bytes and has 24"),
        (file_bytes(changed("a", data_offsets=[24, 0])), "needs 24 bytes and has -24"),
        (file_bytes(changed("b", data_offsets=[23, 28]), 28), "b overlaps a"),
        (file_bytes(changed("b", data_offsets=[25, 30]), 30), "1 bytes before b belong to no tensor"),
        (file_bytes(GOOD, 28), "the file is cut off"),
        (file_bytes(GOOD, 31), "2 bytes at the end belong to no tensor"),
        (
            file_bytes(b'{"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}, "a": 3}', 0),
            "a is in the header twice",
        ),
    ],
)
def test_a_fault_names_the_shard_and_the_tensor(tmp_path, content, message):
    _, wrong = read(tmp_path, content)
    assert "model-00001-of-00002.safetensors: " in wrong
    assert message in wrong


def test_all_faults_of_a_shard_are_listed(tmp_path):
    _, wrong = read(tmp_path, file_bytes({**changed("a", dtype="F33"), "b": None}))
    assert "2 faults" in wrong
    assert "F33" in wrong
    assert "b needs a dtype" in wrong


DTYPES = st.sampled_from(["float32", "float16", "int8", "uint8", "int64", "bool"])
TENSORS = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
    st.tuples(DTYPES, st.lists(st.integers(0, 4), max_size=3)),
    max_size=5,
)


@given(tensors=TENSORS, cut=st.integers(1, 1 << 16))
def test_what_the_library_writes_is_read_and_any_cut_is_refused(tmp_path_factory, tensors, cut):
    folder = tmp_path_factory.mktemp("shard")
    content = save({name: np.zeros(shape, dtype) for name, (dtype, shape) in tensors.items()})
    entries, wrong = read(folder, content)
    assert wrong == ""
    assert {name: (entry.shape, entry.nbytes) for name, entry in entries.items()} == {
        name: (tuple(shape), np.zeros(shape, dtype).nbytes) for name, (dtype, shape) in tensors.items()
    }
    _, wrong = read(folder, content[: max(0, len(content) - cut)])
    assert wrong != ""
