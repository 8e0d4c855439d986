"""The suite as an author has it: installed from a wheel, run outside the repository."""

import json
import zipfile

import pytest
from wheel_environment import build_wheels, make_environment

from deepinfer_conformance import SUITE_VERSION, inventory


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("installed")


@pytest.fixture(scope="module")
def wheels(folder):
    return build_wheels(folder)


@pytest.fixture(scope="module")
def environment(folder, wheels):
    environment = make_environment(folder, wheels)
    done = environment.run(f"{PIP} {wheels}/*.whl", folder)
    assert done.returncode == 0, done.stdout
    return environment


PIP = "python -m pip install -q --no-deps"


def test_the_wheel_holds_the_checkpoint_and_its_goldens(wheels):
    (wheel,) = wheels.glob("deepinfer_conformance-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    data = {f"deepinfer_conformance/data/tiny_v41/{name}" for name in ("config.json", "model.safetensors")}
    data |= {f"deepinfer_conformance/data/{name}.npz" for name in ("golden_logits", "golden_more")}
    areas = {f"deepinfer_conformance/areas/{name}" for name in inventory.shipped()}
    assert data | areas | {"deepinfer_conformance/inventory.txt", "deepinfer_conformance/conformance.ini"} <= names
    assert wheel.name == f"deepinfer_conformance-{SUITE_VERSION}-py3-none-any.whl"


def test_the_command_runs_outside_the_repository(environment, folder):
    done = environment.run("deepinfer conformance cpu --level smoke -k 'test_load' --report card.json", folder)
    assert done.returncode == 0, done.stdout
    assert "NO VERDICT" in done.stdout
    card = json.loads((folder / "card.json").read_text())
    assert card["areas"]["load"]["passed"] > 5
    assert card["areas"]["load"]["failed"] == 0


def test_pytest_runs_it_by_its_name_and_finds_the_checkpoint(environment, folder):
    """`--collect-only` resolves the backend, and every standard test, from the installed files."""
    program = "from deepinfer_conformance.tiny import data_folder; print(data_folder())"
    done = environment.run(f"python -c '{program}'", folder)
    assert str(folder) in done.stdout
    done = environment.run("python -m pytest --pyargs deepinfer_conformance --backend=cpu --collect-only -q", folder)
    assert done.returncode == 0, done.stdout
    assert "test_an_op_agrees_with_its_reference[linear-float32]" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("nope", 3, "no plugin registers the backend 'nope'"),
        ("cpu --level ful", 2, "did you mean 'full'?"),
        ("cpu --colour", 2, "unrecognized arguments: --colour"),
        ("", 2, "the following arguments are required: NAME"),
    ],
)
def test_the_command_ends_with_the_code_of_what_went_wrong(environment, folder, words, code, said):
    done = environment.run(f"deepinfer conformance {words}", folder)
    assert done.returncode == code, done.stdout
    assert said in done.stdout
