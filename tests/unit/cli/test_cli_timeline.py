"""`deepinfer timeline`, on the tiny checkpoint: no time is asserted, only what happened before what."""

import json
from pathlib import Path

import pytest

from deepinfer_core.observe import extras
from deepinfer_core.observe.trace import read_trace

TINY = Path(__file__).parents[2] / "data" / "tiny_v41"
RUN = ["timeline", "-m", TINY, "--quiet", "--set", "max_length=64", "--cache-tokens", 1024]
SMALL = ["--prompts", 2, "--prompt-tokens", 4, "--steps", 10]


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Traces of one run with overlap and one without."""
    from deepinfer_core.cli.main import main

    folder = tmp_path_factory.mktemp("traces")
    for name, options in (("overlap", []), ("alone", ["--no-overlap"])):
        words = [*RUN, *SMALL, "--trace", folder / f"{name}.json", *options]
        assert main([str(word) for word in words]) == 0
    return folder


def spans(path):
    """(phase, step) -> span. Each comes once a step."""
    return {(phase.name, phase.step): phase for phase in read_trace(path).phases}


def decode_steps(path):
    """Steps whose neighbours are steps too."""
    steps = sorted({step for _, step in spans(path)})
    return steps[1:-1]


def test_with_overlap_a_step_is_planned_and_submitted_before_the_one_before_is_waited_for(traces):
    of = spans(traces / "overlap.json")
    for step in decode_steps(traces / "overlap.json"):
        assert of["submit", step].end_ns <= of["wait", step - 1].start_ns
        assert of["commit", step - 1].start_ns >= of["submit", step].end_ns


def test_without_it_a_step_is_planned_when_the_one_before_has_been_handed_out(traces):
    of = spans(traces / "alone.json")
    for step in decode_steps(traces / "alone.json"):
        assert of["plan", step].start_ns >= of["output", step - 1].end_ns
        assert of["forward", step].start_ns >= of["sample", step - 1].end_ns


def test_the_summary_of_a_recorded_trace(deepinfer, traces):
    code, out, _ = deepinfer("timeline", traces / "alone.json", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["rows"], found["steps"]) == (2, 5)
    assert list(found["host"]) == ["plan", "build", "submit", "wait", "commit", "output"]
    assert list(found["device"]) == ["forward", "sample"]
    assert 0 <= found["overlapped"] <= 1
    assert 0 < found["busy"] < 1


def test_a_recorded_trace_is_drawn(deepinfer, traces, tmp_path):
    pytest.importorskip("matplotlib")
    code, out, _ = deepinfer("timeline", traces / "overlap.json", "--png", tmp_path / "steps.png", "--drawn", 2)
    assert code == 0
    assert "host work" in out
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")


def test_requests_of_a_file_are_run(deepinfer, tmp_path):
    source = tmp_path / "in.jsonl"
    lines = [{"custom_id": name, "prompt_token_ids": [5, 6], "ignore_eos": True} for name in "abc"]
    lines.append({"custom_id": "bad", "prompt_token_ids": []})
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, out, err = deepinfer(*RUN, "--input", source, "--steps", 9, "--json")
    assert code == 1
    assert json.loads(out)["rows"] == 3
    assert "warning: 1 of 4 requests failed" in err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.json"], "nowhere.json cannot be read"),
        (["trace.json", "--steps", 3, "--no-overlap"], "--steps, --no-overlap: only for a run"),
        (["--png", "nowhere/steps.png"], "nowhere is not a folder"),
        (["--trace", "nowhere/trace.json"], "nowhere is not a folder"),
        (["--prompts", 0], "give a whole number from 1"),
        (["--prompts", 3, "--input", "in.jsonl"], "not allowed with argument"),
        (["--input", "in.jsonl", "--prompt-tokens", 3], "--prompt-tokens is for random prompts"),
    ],
)
def test_wrong_usage(deepinfer, words, said):
    if "--png" in words:
        pytest.importorskip("matplotlib")
    code, out, err = deepinfer("timeline", *words)
    assert (code, out) == (2, "")
    assert said in err


def test_too_few_steps_have_no_steady_state(deepinfer):
    code, _, err = deepinfer(*RUN, "--prompts", 1, "--prompt-tokens", 4, "--steps", 3)
    assert code == 2
    assert "there is no steady state" in err


def test_what_a_picture_needs_is_named_before_anything_runs(deepinfer, monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    code, _, err = deepinfer("timeline", "-m", tmp_path / "nowhere", "--png", tmp_path / "steps.png")
    assert code == 2
    assert (
        "--png needs the package matplotlib, which is not installed: run pip install 'deepinfer-core[timeline]'" in err
    )
