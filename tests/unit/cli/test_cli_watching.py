"""--timeline, --metrics and --metrics-port on the commands that answer."""

import json
import socket
import urllib.request

import pytest
from command_llm import CommandLLM

from deepinfer_core.api.errors import DeviceError
from deepinfer_core.interfaces.observer import Phase
from deepinfer_core.interfaces.scheduler import SchedulerStats
from deepinfer_core.observe import extras
from deepinfer_core.observe import timeline as timeline_module

STATS = SchedulerStats(0, 1, 1, 1, 0, 1, 0)


@pytest.fixture
def watched(llms, monkeypatch):
    """A stand-in for LLM that tells its observers of a step and of every answer."""

    def answer(self, request):
        output = inner(self, request)
        for observer in self.config.observers:
            observer.on_phase(Phase("plan", 1, 0, 1000, device=False))
            observer.on_step(1, 8, STATS)
            observer.on_finish(output)
        return output

    inner = CommandLLM._answer
    monkeypatch.setattr(CommandLLM, "_answer", answer)
    return llms


@pytest.fixture(params=["generate", "run-batch"])
def words(request, tmp_path):
    """A command with two prompts."""
    if request.param == "generate":
        return ["generate", "a", "b"]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"custom_id": name, "prompt": name}) + "\n" for name in "ab"))
    return ["run-batch", "-i", source, "-o", tmp_path / "out.jsonl", "--no-progress"]


def test_nobody_watches_unless_asked(deepinfer, watched, words):
    assert deepinfer(*words)[0] == 0
    assert watched[0].config.observers == ()


def test_a_timeline(deepinfer, watched, words, tmp_path):
    assert deepinfer(*words, "--timeline", tmp_path / "trace.json")[0] == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X"] == ["plan", "plan"]


@pytest.mark.parametrize("option", ["--timeline", "--metrics"])
@pytest.mark.parametrize("name", ["in.jsonl", "out.jsonl", "out.jsonl.manifest.json", "out.jsonl.waiting"])
def test_a_run_keeps_its_files_to_itself(deepinfer, watched, tmp_path, option, name):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"custom_id": "a", "prompt": "a"}\n')
    code, _, err = deepinfer("run-batch", "-i", source, "-o", target, option, tmp_path / "." / name)
    assert code == 2
    assert "give it a file of its own" in err
    assert watched == []
    assert source.read_text().startswith('{"custom_id"')
    assert not target.exists()


def test_two_ways_of_watching_need_two_files(deepinfer, watched, words, tmp_path):
    code, _, err = deepinfer(*words, "--timeline", tmp_path / "one", "--metrics", tmp_path / "one")
    assert (code, watched) == (2, [])
    assert "--metrics = " in err


def test_a_full_timeline_is_said(deepinfer, watched, words, tmp_path, monkeypatch):
    monkeypatch.setattr(timeline_module, "MAX_EVENTS", 3)
    code, _, err = deepinfer(*words, "--timeline", tmp_path / "trace.json")
    assert code == 0
    assert "trace.json is full: its last 1 events were left out" in err


def test_a_metrics_file(deepinfer, watched, words, tmp_path):
    pytest.importorskip("prometheus_client")
    assert deepinfer(*words, "--metrics", tmp_path / "engine.prom")[0] == 0
    lines = (tmp_path / "engine.prom").read_text().splitlines()
    assert 'deepinfer_requests_total{outcome="answered"} 2.0' in lines
    assert "deepinfer_sequences_running 1.0" in lines
    assert not [line for line in lines if "_created" in line]


def test_metrics_at_a_port(deepinfer, watched, words, monkeypatch):
    pytest.importorskip("prometheus_client")
    scraped = []

    def answer(self, request):
        output = inner(self, request)
        (url,) = {line.split()[-1] for line in urls}
        with urllib.request.urlopen(url) as page:
            scraped.append(page.read().decode())
        return output

    urls = []
    inner = CommandLLM._answer
    monkeypatch.setattr(CommandLLM, "_answer", answer)
    monkeypatch.setattr("deepinfer_core.observe.log.tell", lambda text, *_, **__: urls.append(text))
    assert deepinfer(*words, "--quiet", "--metrics-port", 0)[0] == 0
    assert [page.count('outcome="answered"} 1.0') for page in scraped] == [1, 0]


def test_a_port_in_use_is_wrong_usage_and_loads_nothing(deepinfer, watched, words):
    pytest.importorskip("prometheus_client")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = deepinfer(*words, "--metrics-port", taken.getsockname()[1])
    assert code == 2
    assert "metrics cannot be served on port" in err
    assert watched == []


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--timeline", "nowhere/trace.json", "nowhere is not a folder"),
        ("--metrics", "nowhere/engine.prom", "nowhere/engine.prom cannot be written"),
        ("--metrics-port", "65536", "'65536' is not allowed: give a port from 0 to 65535"),
        ("--metrics-port", "-1", "--metrics-port"),
        ("--metrics-port", "http", "'http' is not allowed"),
    ],
)
def test_wrong_usage_loads_nothing(deepinfer, watched, words, option, value, said):
    if option != "--timeline":
        pytest.importorskip("prometheus_client")
    code, _, err = deepinfer(*words, option, value)
    assert code == 2
    assert said in err
    assert watched == []


@pytest.mark.parametrize(("option", "value"), [("--metrics", "engine.prom"), ("--metrics-port", "0")])
def test_what_metrics_need_is_named(deepinfer, watched, words, monkeypatch, option, value):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    code, _, err = deepinfer(*words, option, value)
    assert code == 2
    assert f"{option} needs the package prometheus-client, which is not installed: run pip install" in err
    assert watched == []


def test_a_run_that_breaks_off_leaves_its_timeline(deepinfer, watched, tmp_path, monkeypatch):
    monkeypatch.setattr(CommandLLM, "dies_after", 1)
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"custom_id": name, "prompt": name}) + "\n" for name in "ab"))
    words = ["run-batch", "-i", source, "-o", tmp_path / "out.jsonl", "--no-progress"]
    code, _, err = deepinfer(*words, "--timeline", tmp_path / "trace.json")
    assert code == DeviceError.exit_code
    assert "the device fell off" in err
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) > 5


def test_a_trace_that_cannot_be_written_at_last_hides_no_other_error(deepinfer, watched, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()

    def fail(self, prompts, params, **options):
        (tmp_path / "folder").rmdir()
        raise DeviceError("the device fell off")

    monkeypatch.setattr(CommandLLM, "generate", fail)
    code, _, err = deepinfer("generate", "a", "--timeline", tmp_path / "folder" / "trace.json")
    assert code == DeviceError.exit_code
    assert "trace.json cannot be written" in err
    assert "deepinfer: the device fell off" in err
