"""`deepinfer new-backend` and `deepinfer new-plugin`: names and folders refused, and packages that are whole and clean.

That a new backend conforms, and that new plugins work in an engine, is shown by the tutorials (test_tutorial.py).
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from argparse import ArgumentParser
from contextlib import chdir
from importlib.metadata import EntryPoint
from pathlib import Path
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scikit_build_core.build import build_wheel

from deepinfer_conformance.scaffold.commands import NewBackend, NewPlugin
from deepinfer_conformance.scaffold.names import LONGEST, NameRefused, Names, check_free, check_name
from deepinfer_conformance.scaffold.write import KINDS, PLUGIN_KINDS, FolderRefused, render, write_package
from deepinfer_conformance.waivers import read_waivers
from deepinfer_core.api.config import read_environment
from deepinfer_core.plugin.loader import Plugins, load_plugins
from deepinfer_core.plugin.registry import Registry

ROOT = Path(__file__).parents[3]
NAMES = {"backend": "acme-npu", "constraint": "pick", "drafter": "q", "processor": "x" * LONGEST}
COMMON = {"README.md", "pyproject.toml", "@/__init__.py", "@/plugin.py", "@/py.typed"}
EXPECTED = {
    "backend": COMMON
    | {"@/backend.py", "@/queue.py", "@/kernels/__init__.py", "@/kernels/norm.py", "ci.sh"}
    | {"tests/conformance.toml", "tests/test_smoke.py"},
    "constraint": COMMON | {"@/choice.py", "tests/test_choice.py"},
    "drafter": COMMON | {"@/drafter.py", "tests/test_drafter.py"},
    "processor": COMMON | {"@/stage.py", "tests/test_stage.py"},
}


def family(kind: str) -> str:
    return "backend" if kind == "backend" else "plugin"


def names_of(kind: str) -> Names:
    return check_name(NAMES[kind], family(kind))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A package of every kind."""
    folder = tmp_path_factory.mktemp("packages")
    for kind in KINDS:
        write_package(render(kind, names_of(kind)), folder / kind)
    return {kind: folder / kind for kind in KINDS}


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["", "MyChip", "my_chip", "1chip", "-chip", "chip-", "my--chip", "my chip", "chip\n", "é", "../chip", "a" * 21],
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(NameRefused, match="is not allowed: give at most 20 lower-case letters and digits"):
        check_name(name, "backend")


def test_a_name_gives_all_names_of_a_package() -> None:
    names = check_name("acme-npu2", "backend")
    found = (names.distribution, names.module, names.prefix)
    assert found == ("deepinfer-backend-acme-npu2", "deepinfer_acme_npu2", "AcmeNpu2")


@given(st.from_regex("[a-z][a-z0-9]{0,6}(-[a-z0-9]{1,6})?", fullmatch=True))
def test_an_allowed_name_gives_identifiers(name: str) -> None:
    names = check_name(name, "plugin")
    assert names.module.isidentifier()
    assert names.prefix.isidentifier()
    assert names.prefix[0].isupper()


@pytest.mark.parametrize(
    ("name", "kind", "owner"),
    [
        ("cpu", "backend", "an installed plugin (deepinfer-backend-cpu "),
        ("core", "backend", "an installed module (deepinfer_core)"),
        ("conformance", "constraint", "conformance"),
    ],
)
def test_a_name_of_something_installed_is_taken(name: str, kind: str, owner: str) -> None:
    plugins = load_plugins(read_environment({}), stop=False)
    with pytest.raises(NameRefused, match=f"the name '{name}' is taken by .*{re.escape(owner)}"):
        check_free(Names(name, family(kind)), kind, plugins)


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_another_plugin_registers_for_the_same_kind_is_taken(kind: str) -> None:
    registry = Registry()
    registry.by_hook[f"deepinfer_{kind}s"].registrar("other")("acme", object)
    plugins = Plugins(registry, (), (), {})
    with pytest.raises(NameRefused, match=f"is taken by the .*{kind}.* of the plugin 'other'"):
        check_free(Names("acme", family(kind)), kind, plugins)
    for free in set(KINDS) - {kind}:
        check_free(Names("acme", family(free)), free, plugins)


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_with_something_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FolderRefused, match="is not empty: name a folder that is empty"):
        write_package({"README.md": "new"}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_place_where_no_folder_can_be_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FolderRefused, match="is not a folder|cannot be written \\(Not a directory\\)"):
        write_package({"README.md": "new"}, tmp_path / "file" / below)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(FolderRefused, match="is not a folder"):
        write_package({"README.md": "new"}, tmp_path / "link")


@pytest.mark.parametrize("existed", [True, False])
def test_a_full_disk_leaves_no_half_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existed: bool) -> None:
    folder = tmp_path / "package"
    if existed:
        folder.mkdir()
    write = Path.write_text

    def fill_up(path: Path, text: str, **options: str) -> int:
        if path.name == "plugin.py":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, text, **options)

    monkeypatch.setattr(Path, "write_text", fill_up)
    with pytest.raises(FolderRefused, match="package cannot be written \\(No space left on device\\)"):
        write_package(render("backend", names_of("backend")), folder)
    assert folder.exists() == existed
    assert not list(folder.glob("*"))


def test_an_empty_folder_and_missing_parents_will_do(tmp_path: Path) -> None:
    write_package({"a/b.txt": "new"}, tmp_path)
    write_package({"a/b.txt": "new"}, tmp_path / "x" / "y")
    assert (tmp_path / "x" / "y" / "a" / "b.txt").read_text() == "new"


# --- the commands ----------------------------------------------------------------------------------------------------


def command(made: NewBackend | NewPlugin, *words: str) -> int:
    parser = ArgumentParser()
    made.configure(parser)
    return made.run(parser.parse_args(words))


def test_a_backend_goes_into_a_folder_named_like_its_distribution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chdir(tmp_path):
        assert command(NewBackend(), "acme-npu") == 0
    folder = tmp_path / "deepinfer-backend-acme-npu"
    said = capsys.readouterr().out
    assert all(f"  {path.relative_to(folder)}\n" in said for path in folder.rglob("*.py"))
    assert "python -m pip install -e deepinfer-backend-acme-npu\n" in said
    assert "deepinfer conformance acme-npu\n" in said


@pytest.mark.parametrize("kind", PLUGIN_KINDS)
def test_a_plugin_is_of_the_kind_asked_for_wherever_the_option_stands(tmp_path: Path, kind: str) -> None:
    command(NewPlugin(), "pick", "--kind", kind, str(tmp_path / "first"))
    command(NewPlugin(), "--kind", kind, "pick", str(tmp_path / "second"))
    for folder in (tmp_path / "first", tmp_path / "second"):
        assert f"def deepinfer_{kind}s(" in (folder / "deepinfer_pick" / "plugin.py").read_text()


def test_the_suites_plugin_registers_the_commands() -> None:
    points = [EntryPoint("conformance", "deepinfer_conformance.cli", "deepinfer")]
    commands = load_plugins(read_environment({}), found=points).registry.commands
    assert isinstance(commands["new-backend"], NewBackend)
    assert isinstance(commands["new-plugin"], NewPlugin)


def test_the_commands_need_no_torch() -> None:
    code = "import sys, deepinfer_conformance.scaffold.commands; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env=environment()).returncode == 0


def environment(*paths: Path) -> dict[str, str]:
    """This process's environment, with its import path and these folders before it."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), *filter(None, sys.path)])}


# --- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_is_complete(packages: dict[str, Path], kind: str) -> None:
    found = {str(path.relative_to(packages[kind])) for path in packages[kind].rglob("*") if path.is_file()}
    assert found == {name.replace("@", names_of(kind).module) for name in EXPECTED[kind]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["acme", "mychip2", "amyplugin"])
def test_no_placeholder_is_left(kind: str, name: str) -> None:
    names = Names(name, family(kind))
    text = "\n".join(f"{path}\n{content}" for path, content in render(kind, names).items())
    for ours in (names.module, names.prefix, names.name):
        text = text.replace(ours, "")
    assert not re.search("mychip|myplugin", text, re.IGNORECASE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_builds_as_a_wheel(packages: dict[str, Path], kind: str, tmp_path: Path) -> None:
    names = names_of(kind)
    with chdir(packages[kind]):
        wheel = build_wheel(str(tmp_path), {"cmake.version": ">=3.20"})
    with ZipFile(tmp_path / wheel) as content:
        files = set(content.namelist())
        (points,) = (content.read(name).decode() for name in files if name.endswith("entry_points.txt"))
    assert wheel.startswith(f"{names.distribution.replace('-', '_')}-0.1.0-")
    assert points.split() == ["[deepinfer]", names.name, "=", f"{names.module}.plugin"]
    wanted = {name.replace("@", names.module) for name in EXPECTED[kind] if name.startswith("@")}
    assert {name for name in files if ".dist-info/" not in name} == wanted


@pytest.mark.parametrize("arguments", [["check"], ["format", "--check", "--diff"]])
def test_a_package_is_in_our_style(packages: dict[str, Path], arguments: list[str]) -> None:
    pytest.importorskip("ruff")
    run = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments, "--no-cache", *map(str, packages.values())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_package_is_typed_strictly(packages: dict[str, Path], tmp_path: Path) -> None:
    """Torch's own types are left out: to read them takes half a minute."""
    pytest.importorskip("mypy")
    settings = tmp_path / "mypy.ini"
    sources = ":".join(map(str, [ROOT, ROOT / "tests" / "conformance", *packages.values()]))
    settings.write_text(f"[mypy]\nstrict = True\nmypy_path = {sources}\n[mypy-torch.*]\nfollow_imports = skip\n")
    files = [str(path) for folder in packages.values() for path in folder.rglob("*.py")]
    words = ["--config-file", str(settings), "--cache-dir", str(tmp_path / "cache"), *files]
    run = subprocess.run([sys.executable, "-m", "mypy", *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_tests_of_new_plugins_pass(packages: dict[str, Path]) -> None:
    folders = [packages[kind] for kind in PLUGIN_KINDS]
    words = ["-q", "-p", "no:cacheprovider", "--rootdir", str(folders[0].parent)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *(str(folder / "tests") for folder in folders)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(*folders),
        cwd=folders[0].parent,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"^\d\d passed", run.stdout, re.MULTILINE)


def test_a_new_drafter_says_that_the_engine_does_not_use_it_yet() -> None:
    text = render("drafter", Names("q", "plugin"))["README.md"]
    assert "does not use them yet" in text


# --- the example -----------------------------------------------------------------------------------------------------


def test_the_example_backend_is_what_new_backend_writes() -> None:
    """When this fails: remove that folder and run `deepinfer new-backend mychip examples/plugins/mychip`."""
    folder = ROOT / "examples" / "plugins" / "mychip"
    files = (path for path in folder.rglob("*") if path.is_file() and not is_litter(path.relative_to(folder)))
    found = {str(path.relative_to(folder)): path.read_text() for path in files}
    assert found == render("backend", Names("mychip", "backend"))


def is_litter(path: Path) -> bool:
    """What tools leave behind: caches and builds."""
    return any(part.startswith(".") or part in ("__pycache__", "build") for part in path.parts)


def test_the_waivers_of_a_new_backend_are_none(tmp_path: Path) -> None:
    write_package(render("backend", Names("acme", "backend")), tmp_path)
    assert read_waivers(tmp_path / "tests" / "conformance.toml") == ()
