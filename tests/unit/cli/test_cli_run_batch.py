"""`deepinfer run-batch`: what the command adds to the run."""

import json
import re
import resource
import signal
from pathlib import Path

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


@pytest.mark.parametrize(
    ("then", "now", "named"),
    [
        ([], ["--max-tokens", "9"], "default max_tokens: 128 then, 9 now"),
        (["--max-length", "64"], [], "max_length: 64 then, None now"),
        (["--prefill", "exact"], [], "prefill: 'exact' then, 'bounded' now"),
        ([], ["--set", "replay=bounded"], "replay: 'exact' then, 'bounded' now"),
        ([], ["--order", "completion"], "order: 'input' then, 'completion' now"),
        ([], ["--seed", "4"], "default seed: None then, 4 now"),
    ],
)
def test_every_option_that_changes_answers_is_named(deepinfer, llms, files, then, now, named):
    files.give("a")
    deepinfer(*files.words, *then)
    code, _, err = deepinfer(*files.words, "--resume", *now)
    assert (code, named in err) == (2, True)


def test_another_model_of_the_same_name_is_refused_and_the_same_one_elsewhere_is_not(deepinfer, llms, files, tmp_path):
    files.give("a")
    model = tmp_path / "here" / "tiny"
    model.mkdir(parents=True)
    (model / "config.json").write_text('{"layers": 1}')
    deepinfer(*files.words, "--model", model)
    moved = model.rename(tmp_path / "tiny")
    assert deepinfer(*files.words, "--model", moved, "--resume")[0] == 0
    (moved / "config.json").write_text('{"layers": 2}')
    code, _, err = deepinfer(*files.words, "--model", moved, "--resume")
    assert code == 2
    assert re.search("model config.json: '[0-9a-f]{16}' then, '[0-9a-f]{16}' now", err)


def test_a_model_that_is_not_there_leaves_nothing_behind(deepinfer, llms, files):
    files.give("a")
    assert deepinfer(*files.words, "--model", "nowhere")[0] == 2
    assert not files.target.exists()


def test_without_a_prefix_cache_replay_does_not_matter(deepinfer, llms, files):
    files.give("a")
    deepinfer(*files.words, "--set", "prefix_cache=false", "--set", "replay=bounded")
    assert deepinfer(*files.words, "--resume")[0] == 0


def test_failed_requests_are_answered_again_when_asked(deepinfer, llms, files):
    files.give("a", TOO_LONG, "b")
    deepinfer(*files.words)
    code, out, _ = deepinfer(*files.words, "--retry-failed")
    assert code == 1
    assert "0 answered, 1 failed, 2 from before (0 failed)" in out
    assert [record["custom_id"] for record in files.records()] == ["0", "1", "2"]
    assert deepinfer(*files.words, "--retry-failed", "--resume")[0] == 1
    code, _, err = deepinfer(*files.words, "--retry-failed", "--overwrite")
    assert (code, "exclude each other" in err) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_130_and_says_how_to_go_on(deepinfer, llms, files, monkeypatch, number):
    answer, pressed = CommandLLM._answer, []

    def press_once(self, request):
        if not pressed:
            pressed.append(number)
            signal.raise_signal(number)
        return answer(self, request)

    monkeypatch.setattr(CommandLLM, "_answer", press_once)
    files.give(*"abcdefghi")
    code, _, err = deepinfer(*files.words, "--order", "completion")
    assert code == 130
    assert err.endswith(f"finished answers are kept: go on with --resume -o {files.target}\ndeepinfer: interrupted\n")
    assert 0 < len(files.records()) < 9


def test_a_full_disk_is_code_2(deepinfer, llms, files):
    files.give(*"abcdefghi")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
    try:
        code, _, err = deepinfer(*files.words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 2
    assert err.endswith("cannot be written: File too large; whole records stay: make room, then go on with --resume\n")
    assert deepinfer(*files.words, "--resume")[0] == 0
    assert [record["custom_id"] for record in files.records()] == list("012345678")


def test_help_and_the_document_say_the_same_exit_codes(deepinfer):
    code, out, _ = deepinfer("run-batch", "--help")
    assert code == 0
    document = (Path(__file__).parents[3] / "docs" / "batch.md").read_text()
    for number, meaning in re.findall(r"^  (\d+) +(\S.*)$", out.split("exit codes:")[1], re.MULTILINE):
        assert f"| {number} | {meaning} |" in document
    assert len(re.findall(r"^\| \d+ \|", document, re.MULTILINE)) == 5


def test_every_option_of_its_own_is_in_the_document(deepinfer):
    own = deepinfer("run-batch", "--help")[1].split("\noptions:")[1].split("\n\n")[0]
    document = (Path(__file__).parents[3] / "docs" / "batch.md").read_text()
    for option in set(re.findall(r"--[a-z-]+", own)) - {"--help"}:
        assert f"`{option}" in document, option


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
