import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_cpu.memory import read_memory

MACHINE = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\nHugePages_Total:   0\n"
KIB = 1024


@pytest.fixture
def root(tmp_path):
    write(tmp_path, "proc/meminfo", MACHINE)
    return tmp_path


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def group_2(root, path, limit, used, inactive=0):
    folder = f"sys/fs/cgroup/{path}"
    write(root, f"{folder}/memory.max", f"{limit}\n")
    write(root, f"{folder}/memory.current", f"{used}\n")
    write(root, f"{folder}/memory.stat", f"anon 1\ninactive_file {inactive}\n")


def test_without_control_groups_the_machine_says(root):
    assert read_memory(root) == (600 * KIB, 1000 * KIB)


def test_a_version_2_group_bounds_and_its_file_pages_count_as_free(root):
    write(root, "proc/self/cgroup", "0::/job\n")
    group_2(root, "job", 300 * KIB, 250 * KIB, inactive=20 * KIB)
    assert read_memory(root) == (70 * KIB, 300 * KIB)


def test_the_tightest_parent_bounds(root):
    write(root, "proc/self/cgroup", "0::/outer/inner\n")
    group_2(root, "outer/inner", "max", 10)
    group_2(root, "outer", 400 * KIB, 100 * KIB)
    assert read_memory(root) == (300 * KIB, 400 * KIB)


def test_a_group_without_a_limit_does_not_bound(root):
    write(root, "proc/self/cgroup", "0::/\n")
    group_2(root, "", "max", 10)
    assert read_memory(root) == (600 * KIB, 1000 * KIB)


@pytest.mark.parametrize(("limit", "expected"), [(200 * KIB, (150 * KIB, 200 * KIB)), (2**63 - 4096, None)])
def test_version_1_bounds_unless_its_limit_is_none(root, limit, expected):
    write(root, "proc/self/cgroup", "12:cpu,cpuacct:/x\n9:memory:/job\n")
    write(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", f"{limit}\n")
    write(root, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", f"{60 * KIB}\n")
    write(root, "sys/fs/cgroup/memory/job/memory.stat", f"total_inactive_file {10 * KIB}\n")
    assert read_memory(root) == (expected or (600 * KIB, 1000 * KIB))


@given(limit=st.integers(0, 2000 * KIB), used=st.integers(0, 2000 * KIB), inactive=st.integers(0, 2000 * KIB))
def test_free_is_never_negative_nor_above_what_the_machine_has(tmp_path_factory, limit, used, inactive):
    root = tmp_path_factory.mktemp("root")
    write(root, "proc/meminfo", MACHINE)
    write(root, "proc/self/cgroup", "0::/job\n")
    group_2(root, "job", limit, used, inactive)
    free, total = read_memory(root)
    assert 0 <= free <= 600 * KIB
    assert total == min(limit, 1000 * KIB)


def test_this_machine_has_memory():
    free, total = read_memory()
    assert 0 < free <= total
