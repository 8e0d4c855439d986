"""`deepinfer run-batch`: what the command adds to the run."""

import json

import pytest
from command_llm import CommandLLM
from fake_llm import TOO_LONG


class Files:
    def __init__(self, folder):
        self.source = folder / "in.jsonl"
        self.target = folder / "out.jsonl"

    def give(self, *prompts):
        lines = [json.dumps({"custom_id": str(place), "prompt": prompt}) for place, prompt in enumerate(prompts)]
        self.source.write_text("\n".join(lines))

    @property
    def words(self):
        return ["run-batch", "-i", self.source, "-o", self.target]

    def records(self):
        return [json.loads(line) for line in self.target.read_text().splitlines()]


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def test_all_answered(deepinfer, llms, files):
    files.give("a", "b")
    code, out, err = deepinfer(*files.words)
    assert code == 0
    assert out.startswith("2 requests: 2 answered, 0 failed; ")
    assert "0/2 requests" in err
    assert len(files.records()) == 2


def test_some_failed(deepinfer, llms, files):
    files.give("a", TOO_LONG)
    code, out, _ = deepinfer(*files.words)
    assert code == 1
    assert "1 answered, 1 failed" in out


def test_the_summary_as_json(deepinfer, llms, files):
    files.give("a")
    summary = json.loads(deepinfer(*files.words, "--json", "--no-progress")[1])
    assert (summary["requests"], summary["succeeded"], summary["completion_tokens"]) == (1, 1, 15)
    assert summary["tokens_per_second"] > 0


def test_no_progress(deepinfer, llms, files):
    files.give("a")
    assert deepinfer(*files.words, "--no-progress", "--quiet")[2] == ""


def test_the_summary_says_what_was_there_before(deepinfer, llms, files):
    files.give("a", TOO_LONG)
    deepinfer(*files.words)
    code, out, _ = deepinfer(*files.words, "--resume")
    assert code == 1
    assert "0 answered, 0 failed, 2 from before (1 failed)" in out


def test_existing_records_are_kept_unless_told(deepinfer, llms, files):
    files.give("a")
    deepinfer(*files.words)
    before = files.target.read_bytes()
    code, _, err = deepinfer(*files.words)
    assert code == 2
    assert "--resume" in err
    assert files.target.read_bytes() == before
    assert deepinfer(*files.words, "--overwrite")[0] == 0


def test_resume_and_overwrite_exclude_each_other(deepinfer, llms, files):
    assert deepinfer(*files.words, "--resume", "--overwrite")[0] == 2


def test_a_run_is_not_resumed_with_other_parameters(deepinfer, llms, files):
    files.give("a")
    deepinfer(*files.words, "--temperature", "0")
    code, _, err = deepinfer(*files.words, "--resume", "--temperature", "1")
    assert code == 2
    assert "default temperature: 0.0 then, 1.0 now" in err


def test_a_run_is_resumed_with_other_sizes(deepinfer, llms, files):
    files.give("a")
    deepinfer(*files.words)
    assert deepinfer(*files.words, "--resume", "--max-running", "2", "--set", "overlap=false")[0] == 0


def test_a_wrong_default_is_wrong_usage_before_anything_runs(deepinfer, llms, files):
    files.give("a")
    code, _, err = deepinfer(*files.words, "--top-p", "0")
    assert code == 2
    assert "top_p = 0.0" in err
    assert not files.target.exists()


def test_defaults_reach_the_requests(deepinfer, llms, files):
    files.give("a")
    deepinfer(*files.words, "-n", "3")
    assert len(files.records()[0]["response"]["body"]["choices"]) == 3


def test_other_models_are_told(deepinfer, llms, files):
    files.source.write_text(json.dumps({"custom_id": "a", "prompt": "a", "model": "gpt"}))
    assert "requests name other models (gpt)" in deepinfer(*files.words)[2]


@pytest.mark.parametrize("order", ["input", "completion"])
def test_a_dead_device(deepinfer, llms, files, monkeypatch, order):
    monkeypatch.setattr(CommandLLM, "dies_after", 3)
    files.give(*"abcdef")
    code, _, err = deepinfer(*files.words, "--order", order)
    assert code == 3
    assert "finished answers are kept: go on with --resume" in err
    monkeypatch.setattr(CommandLLM, "dies_after", None)
    code, out, _ = deepinfer(*files.words, "--order", order, "--resume")
    assert code == 0
    assert "3 answered, 0 failed, 3 from before (0 failed)" in out
    assert sorted(record["custom_id"] for record in files.records()) == list("012345")


def test_an_interrupt_keeps_what_is_finished(deepinfer, llms, files, monkeypatch):
    monkeypatch.setattr(CommandLLM, "dies_after", 2)
    monkeypatch.setattr("fake_llm.DeviceError", lambda text: KeyboardInterrupt())
    files.give(*"abcdef")
    code, _, err = deepinfer(*files.words, "--order", "completion")
    assert code == 130
    assert err.endswith("deepinfer: interrupted\n")
    assert len(files.records()) == 2
