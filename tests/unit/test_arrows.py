"""Which room may import which: docs/architecture.md, `Rooms`, held by reading every import statement."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "deepinfer_core"

# The vocabulary of the public face: plain data that any room above `interfaces` may hold.
WORDS = {"api.config", "api.errors", "api.outputs", "api.params"}
LOW = {"interfaces"} | WORDS
ENGINE = LOW | {
    "cache",
    "loading",
    "models",
    "observe",
    "ops",
    "parallel",
    "plugin",
    "sampling",
    "scheduling",
    "text",
}
ALLOWED = {
    "interfaces": {"interfaces", "api.errors"},
    "plugin": LOW,
    "ops": LOW,
    "scheduling": LOW | {"_native"},
    "cache": LOW,
    "sampling": LOW | {"ops"},
    "parallel": LOW,
    "loading": LOW,
    "models": LOW | {"ops", "loading", "plugin.hookspecs"},
    "text": LOW,
    "observe": LOW,
    "engine": ENGINE,
    "api": ENGINE | {"engine"},
    "batchio": ENGINE | {"engine", "api"},
    "bench": ENGINE | {"engine", "api"},
    "cli": ENGINE | {"engine", "api", "batchio", "bench", "_native"},
}
HARDWARE = {"cpu", "cuda", "npu", "ascend", "rocm", "xpu", "mps"}


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports when it runs; imports for type checkers only do not count."""
    for node in _running(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                below = ROOT / Path(*whole.split("."))
                yield whole if below.is_dir() or below.with_suffix(".py").exists() else node.module


def _running(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield from _running(child)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "build" not in path.parts)


def room_of(path: Path) -> str:
    return path.relative_to(CORE).parts[0]


ROOM_FILES = [path for path in files(CORE) if path.parent != CORE]


def test_every_room_has_its_arrows():
    assert {room_of(path) for path in ROOM_FILES} == set(ALLOWED)


def test_a_room_imports_only_what_it_may():
    wrong = []
    for path in ROOM_FILES:
        allowed = ALLOWED[room_of(path)] | {room_of(path)}
        for name in imports(path):
            inner = name.removeprefix("deepinfer_core.")
            if inner != name and not any(inner == one or inner.startswith(f"{one}.") for one in allowed):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_the_core_imports_no_backend_and_no_plugin():
    ours = {(path, name) for path in files(CORE) for name in imports(path) if name.startswith("deepinfer")}
    assert not [(path, name) for path, name in ours if name.split(".")[0] != "deepinfer_core"]


def test_the_core_decides_nothing_by_the_name_of_hardware():
    """Such names are words in messages and comments. An assertion may hold one, as an invariant of ours."""
    wrong = []
    for path in files(CORE):
        tree = ast.parse(path.read_text())
        asserted = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.Assert) for inner in ast.walk(node)}
        for node in ast.walk(tree):
            if isinstance(node, (ast.Compare, ast.MatchValue)) and id(node) not in asserted:
                values = {inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)}
                if HARDWARE & {value for value in values if isinstance(value, str)}:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong


def test_interfaces_need_neither_torch_nor_numpy_to_be_imported():
    heavy = [(path, name) for path in files(CORE / "interfaces") for name in imports(path)]
    assert not [(path, name) for path, name in heavy if name.split(".")[0] in ("torch", "numpy")]


@pytest.mark.parametrize("folder", ["backends", "plugins", "examples/plugins"])
def test_backends_and_plugins_import_the_core_and_themselves(folder):
    wrong = []
    for path in files(ROOT / folder):
        distribution = ROOT / folder / path.relative_to(ROOT / folder).parts[0]
        own = {child.name for child in distribution.iterdir()}
        if path.is_relative_to(distribution / "tests"):
            own.add("deepinfer_conformance")
        names = {name.split(".")[0] for name in imports(path) if name.startswith("deepinfer")}
        wrong.extend((path, name) for name in names - {"deepinfer_core"} - own)
    assert not wrong


def test_a_type_checkers_import_does_not_count(tmp_path):
    module = tmp_path / "module.py"
    module.write_text("import a\nif TYPE_CHECKING:\n    import b\ndef f():\n    from d import e\n")
    assert set(imports(module)) == {"a", "d"}


def test_a_module_imported_from_its_package_counts_as_the_module(tmp_path):
    module = tmp_path / "module.py"
    module.write_text("from deepinfer_core.ops import norm\nfrom deepinfer_core.ops.norm import rms_norm\n")
    assert set(imports(module)) == {"deepinfer_core.ops.norm"}
