"""A run that was cut short anywhere and continued equals one that was not."""

import itertools
import json
import shutil

import pytest
from batch_bench import TOKENIZER, prompts
from fake_llm import TOO_LONG, FakeLLM

from deepinfer_core.api.errors import ConfigError, DeviceError, InputFileError
from deepinfer_core.batchio.manifest import manifest_path
from deepinfer_core.batchio.writer import side_path

LINES = [*prompts(1), b"null", {"custom_id": "long", "prompt": TOO_LONG}]


def finished(bench, order, lines=LINES):
    bench.give(*lines)
    bench.run(order=order, seed=5)
    return bench.target.read_bytes()


def break_after(bench, answers, order="input"):
    """A run whose device dies."""
    with pytest.raises(DeviceError):
        bench.run(FakeLLM(TOKENIZER, dies_after=answers, seed=1), order=order)


@pytest.mark.usefixtures("instant_disk")
def test_input_order_cut_at_every_byte(bench):
    whole = finished(bench, "input", LINES[:2])
    for cut in range(1, len(whole)):
        bench.target.write_bytes(whole[:cut])
        bench.run(resume=True)
        assert bench.target.read_bytes() == whole


@pytest.mark.usefixtures("instant_disk")
def test_order_of_completion_cut_at_every_byte(bench):
    whole = finished(bench, "completion", LINES[:2])
    for cut in range(1, len(whole)):
        bench.target.write_bytes(whole[:cut])
        bench.run(resume=True, order="completion")
        assert bench.target.read_bytes().startswith(whole[: whole[:cut].rfind(b"\n") + 1])
        assert sorted(bench.target.read_bytes().splitlines()) == sorted(whole.splitlines())


@pytest.mark.usefixtures("instant_disk")
def test_the_side_file_cut_at_every_byte(new_bench):
    broken, whole = new_bench(), new_bench()
    lines = [*prompts(3), b"null"]
    expected = finished_records(whole, lines)
    broken.give(*lines)
    assert any(holds_back(broken, answers) for answers in (1, 2, 3))
    held = side_path(broken.target).read_bytes()
    written = broken.target.read_bytes()
    for cut in range(len(held) + 1):
        broken.target.write_bytes(written)
        side_path(broken.target).write_bytes(held[:cut])
        if not written and not cut:
            continue
        broken.run(resume=True)
        assert broken.records_but_created() == expected
        assert not side_path(broken.target).exists()


def finished_records(bench, lines):
    finished(bench, "input", lines)
    return bench.records_but_created()


def holds_back(bench, answers):
    """Whether a run that dies after so many answers leaves some in the side file."""
    with pytest.raises(DeviceError):
        bench.run(FakeLLM(TOKENIZER, dies_after=answers, seed=1), overwrite=True, seed=5)
    return side_path(bench.target).exists() and side_path(bench.target).stat().st_size > 0


@pytest.mark.parametrize("order", ["input", "completion"])
def test_a_run_that_dies_again_and_again(bench, order):
    bench.give(*prompts(12))
    break_after(bench, 1, order)
    for seed in itertools.count():
        try:
            bench.run(FakeLLM(TOKENIZER, dies_after=2, seed=seed), resume=True, order=order)
        except DeviceError:
            continue
        break
    names = [record["custom_id"] for record in bench.records()]
    assert (names if order == "input" else sorted(names, key=lambda name: int(name[1:]))) == [
        f"r{index}" for index in range(12)
    ]


def test_requests_without_a_seed_get_the_same_one_again(bench):
    bench.give(*prompts(4), {"custom_id": "own", "prompt": "p", "seed": 3})
    break_after(bench, 2)
    bench.run(resume=True)
    resumed = seeds(bench)
    seed = json.loads(manifest_path(bench.target).read_text())["seed"]
    bench.run(overwrite=True, seed=seed)
    assert seeds(bench) == resumed
    assert len(set(resumed.values())) == 5
    assert resumed["own"] == 3


def seeds(bench):
    return {record["custom_id"]: record["response"]["body"]["seed"] for record in bench.records()}


def test_runs_of_their_own_have_seeds_of_their_own(bench):
    bench.give(*prompts(1))
    bench.run()
    first = seeds(bench)
    bench.run(overwrite=True)
    assert seeds(bench) != first


def test_only_what_is_missing_is_asked_again(bench):
    bench.give(*prompts(10))
    break_after(bench, 4)
    summary = bench.run(resume=True)
    assert (summary.requests, summary.resumed, summary.succeeded) == (10, 4, 6)


def test_a_finished_run_needs_no_model_again(bench):
    finished(bench, "input")
    bench.llms.clear()
    summary = bench.run(resume=True)
    assert bench.llms == []
    assert summary.resumed == summary.requests == len(LINES)
    assert (summary.resumed_failed, summary.failed) == (2, 0)


def test_resume_of_nothing_starts(bench):
    bench.give(*prompts(2))
    assert bench.run(resume=True).succeeded == 2


def test_settings_that_look_different_in_json_are_the_same(bench):
    settings = {"stop": ("a", "b"), "nested": {"rows": (1, 2)}}
    bench.give(*prompts(2))
    bench.run(settings=settings)
    assert bench.run(settings=settings, resume=True).resumed == 2


def test_records_without_a_manifest_are_not_resumed(bench):
    finished(bench, "input")
    manifest_path(bench.target).unlink()
    with pytest.raises(InputFileError, match="no manifest"):
        bench.run(resume=True)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 1}', '{"format": 2, "x": 1}'])
def test_a_broken_manifest_is_named(bench, text):
    finished(bench, "input")
    manifest_path(bench.target).write_text(text)
    with pytest.raises(InputFileError, match="manifest"):
        bench.run(resume=True)


def test_resume_and_overwrite_exclude_each_other(bench):
    bench.give(*prompts(1))
    with pytest.raises(ConfigError, match="exclude each other"):
        bench.run(resume=True, overwrite=True)


def test_the_files_can_be_moved_together(bench, tmp_path):
    bench.give(*prompts(10))
    break_after(bench, 4)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for path in (bench.source, bench.target, side_path(bench.target), manifest_path(bench.target)):
        if path.exists():
            shutil.move(path, folder)
    bench.source, bench.target = folder / "in.jsonl", folder / "out.jsonl"
    assert bench.run(resume=True).resumed == 4
