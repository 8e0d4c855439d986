"""The example plugins work as an installer would leave them: on the path, with their metadata beside."""

import json
import logging
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from deepinfer_core import LLM, SamplingParams
from deepinfer_core.api.errors import PluginError
from deepinfer_core.cli.main import main
from deepinfer_core.ops.catalogue import CATALOGUE

ROOT = Path(__file__).parents[2]
MODEL = str(ROOT / "tests" / "data" / "tiny_v41")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs an example by name; the import path is as before when the test ends."""
    modules = set(sys.modules)

    def install(name):
        folder = ROOT / "examples" / "plugins" / name
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        metadata = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        metadata.mkdir()
        header = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        (metadata / "METADATA").write_text(header)
        points = project["entry-points"]["deepinfer"].items()
        (metadata / "entry_points.txt").write_text("[deepinfer]\n" + "".join(f"{k} = {v}\n" for k, v in points))
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.syspath_prepend(str(tmp_path))

    yield install
    for name in set(sys.modules) - modules:
        if name.startswith(("deepinfer_mychip", "deepinfer_usage")):
            del sys.modules[name]


def tokens(backend):
    prompts = [[5, 6, 7], list(range(20, 45))]
    with LLM(MODEL, backend=backend, max_length=256) as llm:
        outputs = llm.generate(prompts, SamplingParams(max_tokens=12, temperature=0.0))
    return [output.outputs[0].token_ids for output in outputs]


def test_the_example_backend_answers_as_the_cpu_backend_does(install):
    install("mychip")
    assert tokens("mychip") == tokens("cpu")


def test_a_run_names_the_example_backend_and_what_it_lacks(install):
    install("mychip")
    with LLM(MODEL, backend="mychip", max_length=256) as llm:
        report = "\n".join(llm.report)
    assert "backend mychip: asked for" in report
    assert "sparse_attention" in report
    assert "rms_norm" not in report


def test_the_example_backends_kernel_keeps_the_references_meaning(install):
    install("mychip")
    from deepinfer_mychip.kernels import rms_norm

    spec = CATALOGUE["rms_norm"]
    bound = spec.tolerances["float32"]
    for case in spec.cases(torch.device("cpu"), torch.float32, 0):
        expected = spec.reference(*case.args)
        torch.testing.assert_close(rms_norm(*case.args), expected, rtol=bound.relative, atol=bound.absolute)


def test_doctor_shows_the_example_backends_own_report(install, capsys):
    install("mychip")
    assert main(["doctor", "--json", "--backend", "mychip"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["chosen"]["backend"] == "mychip"
    assert facts["reports"]["mychip"] == {"driver": "none needed: this is an example"}


def test_the_example_observer_sees_every_request_of_an_engine(install, caplog):
    install("usage")
    caplog.set_level(logging.INFO, "deepinfer_usage")
    with LLM(MODEL, backend="cpu", max_length=256) as llm:
        llm.generate([[5, 6, 7], [8, 9]], SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True))
    counts = sorted(record.args[1:] for record in caplog.records if record.name == "deepinfer_usage.observer")
    assert counts == [(2, 4), (3, 4)]


def test_the_example_command_is_a_command_of_the_program(install, tmp_path, capsys):
    install("usage")
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    records = [
        {"custom_id": "a", "response": {"body": {"usage": usage}}, "error": None},
        {"custom_id": "b", "response": None, "error": {"message": "too long"}},
        {"custom_id": "c", "response": {"body": {"usage": usage}}, "error": None},
    ]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert main(["usage", str(answers)]) == 1
    assert capsys.readouterr().out == "prompt_tokens: 6\ncompletion_tokens: 8\nfailed: 1\n"


@pytest.mark.parametrize("content", [None, "{}\n", "[]\n", "{"])
def test_the_example_command_names_a_file_that_it_cannot_use(install, tmp_path, capsys, content):
    install("usage")
    answers = tmp_path / "out.jsonl"
    if content is not None:
        answers.write_text(content)
    assert main(["usage", str(answers)]) == 2
    assert f"deepinfer: {answers} " in capsys.readouterr().err


def test_an_example_that_is_not_installed_is_not_there():
    with pytest.raises(PluginError, match="no plugin registers the backend 'mychip'"):
        LLM(MODEL, backend="mychip")
