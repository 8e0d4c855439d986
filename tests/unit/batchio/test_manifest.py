"""Only the same run is resumed: the same model, options and default parameters, and an input that at most has grown."""

import json
import logging
import struct

import pytest
from batch_bench import prompts
from fake_llm import TOO_LONG

from deepinfer_core.api.errors import CheckpointError, InputFileError
from deepinfer_core.batchio.fingerprint import SAMPLE_BYTES, model_fingerprint
from deepinfer_core.batchio.manifest import manifest_path


def lines(*names):
    return b"\n".join(json.dumps({"custom_id": name, "prompt": name}).encode() for name in names)


@pytest.mark.parametrize(
    ("then", "now", "named"),
    [
        ({"settings": {"model": "a"}}, {"settings": {"model": "b"}}, "model: 'a' then, 'b' now"),
        ({"settings": {"dtype": "f"}}, {"settings": {}}, "dtype: 'f' then, None now"),
        ({"order": "input"}, {"order": "completion"}, "order: 'input' then, 'completion' now"),
        (
            {"identity": lambda: {"model config.json": "12"}},
            {"identity": lambda: {"model config.json": "34"}},
            "model config.json: '12' then, '34' now",
        ),
        (
            {"settings": {"a": 1, "b": 2, "c": 3}},
            {"settings": {"a": 1, "b": 4, "c": 5}},
            "b: 2 then, 4 now; c: 3 then, 5 now",
        ),
    ],
)
def test_another_run_is_not_resumed(bench, then, now, named):
    bench.give(*prompts(2))
    bench.run(**then)
    before = bench.snapshot()
    with pytest.raises(InputFileError, match=f"begun by a different run \\({named}\\)"):
        bench.run(resume=True, **now)
    assert bench.snapshot() == before


@pytest.mark.parametrize("end", [b"\n", b"", b"\n\n", b"\r\n", b" "])
@pytest.mark.parametrize(("more", "added"), [(lines("c", "d"), 2), (b"\n", 0), (b"null\n", 1)])
def test_an_input_that_has_grown_is_gone_on_with(bench, end, more, added):
    bench.source.write_bytes(lines("a", "b") + end)
    bench.run()
    old = bench.target.read_bytes()
    separator = b"" if end.endswith(b"\n") else b"\n"
    bench.source.write_bytes(lines("a", "b") + end + separator + more)
    summary = bench.run(resume=True)
    assert (summary.resumed, summary.requests) == (2, 2 + added)
    assert bench.target.read_bytes().startswith(old)
    assert len(bench.records()) == summary.requests
    manifest = json.loads(manifest_path(bench.target).read_text())
    assert (manifest["requests"], manifest["input_bytes"]) == (2 + added, bench.source.stat().st_size)
    assert bench.run(resume=True).resumed == summary.requests


@pytest.mark.parametrize(
    "now",
    [
        lines("a"),  # shorter
        lines("a", "B"),
        lines("A", "b", "c"),
        lines("0", "a", "b"),
        lines("a", "b") + lines("c"),  # the last line itself has grown
        lines("a", "b") + b"\rx",
        b"",
    ],
)
def test_an_input_whose_lines_changed_is_refused(bench, now):
    bench.source.write_bytes(lines("a", "b"))
    bench.run()
    before = bench.snapshot()
    bench.source.write_bytes(now)
    with pytest.raises(
        InputFileError, match="input: sha256 [0-9a-f]{64} then, [0-9a-f]{64} now; only lines may be added"
    ):
        bench.run(resume=True)
    assert bench.snapshot() == before


def test_a_new_line_with_an_old_name_is_refused(bench):
    bench.source.write_bytes(lines("a", "b"))
    bench.run()
    bench.source.write_bytes(lines("a", "b", "a"))
    with pytest.raises(InputFileError, match="'a' on lines 1 and 3"):
        bench.run(resume=True)


def test_a_grown_input_in_input_order_answers_in_the_order_of_the_lines(bench):
    bench.give(*prompts(3), {"custom_id": "long", "prompt": TOO_LONG})
    bench.run()
    bench.give(*prompts(3), {"custom_id": "long", "prompt": TOO_LONG}, *prompts(9)[3:])
    assert bench.run(resume=True).succeeded == 6
    assert [record["id"] for record in bench.records()] == [f"line-{line}" for line in range(1, 11)]


def test_other_versions_are_told_and_not_refused(bench, caplog):
    bench.give(*prompts(2))
    bench.run(versions={"deepinfer-core": "1"})
    with caplog.at_level(logging.WARNING):
        bench.run(versions={"deepinfer-core": "1"}, resume=True)
        assert caplog.messages == []
        assert bench.run(versions={"deepinfer-core": "2"}, resume=True).resumed == 2
    assert caplog.messages == [
        f"{bench.target} was begun with {{'deepinfer-core': '1'}} and goes on with {{'deepinfer-core': '2'}}"
    ]


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"layers": 1}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "a.safetensors").write_bytes(shard(b'{"x": 1}', bytes(100_000)))
    (folder / "b.safetensors").write_bytes(shard(b"{}", b""))
    (folder / "readme.txt").write_text("anything")
    return folder


def shard(header, data):
    return struct.pack("<Q", len(header)) + header + data


def test_a_fingerprint_names_every_file_and_is_the_same_again_elsewhere(model, tmp_path):
    found = model_fingerprint(model)
    assert list(found) == ["model config.json", "model tokenizer.json", "model weights"]
    moved = model.rename(tmp_path / "moved")
    (moved / "readme.txt").write_text("anything else")
    (moved / ".hidden.json").write_text("{}")
    assert model_fingerprint(moved) == found


@pytest.mark.parametrize("place", [9, 20, -1])
def test_a_changed_byte_of_the_header_or_of_a_sampled_piece_is_noticed(model, place):
    before = model_fingerprint(model)
    data = bytearray((model / "a.safetensors").read_bytes())
    data[place] ^= 1
    (model / "a.safetensors").write_bytes(data)
    assert changed(before, model) == {"model weights"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda folder: (folder / "config.json").write_text('{"layers": 2}'), "model config.json"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "model tokenizer.json"),
        (lambda folder: (folder / "generation.json").write_text("{}"), "model generation.json"),
        (lambda folder: (folder / "b.safetensors").unlink(), "model weights"),
        (lambda folder: (folder / "b.safetensors").rename(folder / "c.safetensors"), "model weights"),
        (lambda folder: (folder / "a.safetensors").write_bytes(shard(b'{"x": 1}', bytes(100_001))), "model weights"),
    ],
)
def test_a_change_is_named(model, change, named):
    before = model_fingerprint(model)
    change(model)
    assert changed(before, model) == {named}


def changed(before, model):
    now = model_fingerprint(model)
    return {name for name in before | now if before.get(name) != now.get(name)}


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 9, struct.pack("<Q", 1 << 60) + bytes(SAMPLE_BYTES)])
def test_a_shard_that_is_none_has_a_fingerprint_too(model, content):
    (model / "a.safetensors").write_bytes(content)
    assert model_fingerprint(model) == model_fingerprint(model)


def test_little_of_a_big_shard_is_read(model):
    with (model / "big.safetensors").open("wb") as file:
        file.write(shard(b"{}", b""))
        file.truncate(1 << 40)  # a hole that takes no room, and would take hours to read
    assert "model weights" in model_fingerprint(model)


def test_a_file_that_cannot_be_read_is_named(model):
    (model / "broken.safetensors").symlink_to(model / "nowhere")
    with pytest.raises(CheckpointError, match=r"broken\.safetensors cannot be read: No such file"):
        model_fingerprint(model)
