"""The memory that is available: of the machine, and of the control groups of a container."""

import numpy as np
import pytest

from kernelopt.errors import OptionError
from kernelopt.factorization import memory

GB = 10**9
V2 = {"memory.max": "{limit}", "memory.current": "{used}", "memory.stat": "anon 5\ninactive_file {cache}\n"}
V1 = {
    "memory.limit_in_bytes": "{limit}", "memory.usage_in_bytes": "{used}",
    "memory.stat": "inactive_file 7\ntotal_inactive_file {cache}\n",
}  # fmt: skip


def group(folder, files, limit, used, cache=0):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text.format(limit=limit, used=used, cache=cache))


def told(root, lines):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)


def test_version_2_with_all_groups_above(tmp_path):
    told(tmp_path, "0::/user/job\n")
    top = tmp_path / "sys/fs/cgroup"
    group(top / "user/job", V2, "max", GB)
    group(top / "user", V2, 4 * GB, 3 * GB, cache=GB // 2)
    assert memory._of_groups(tmp_path) == [3 * GB // 2]


def test_version_1_whose_path_is_that_outside_of_the_container(tmp_path):
    told(tmp_path, "5:cpu:/docker/abc\n4:memory:/docker/abc\n0::/\n")
    group(tmp_path / "sys/fs/cgroup/memory", V1, 2 * GB, 3 * GB // 2)
    assert memory._of_groups(tmp_path) == [GB // 2]


def test_folders_that_are_no_groups(tmp_path):
    """Those above the mount, and those that a path leaves it for."""
    told(tmp_path, "4:memory:/docker/abc\n0::/../../escape\n")
    for folder in ("sys/fs/cgroup", "sys/fs/cgroup/docker", "sys/fs", "sys/escape"):
        group(tmp_path / folder, V1, 2 * GB, GB)
    group(tmp_path / "sys/fs", V2, 2 * GB, GB)
    group(tmp_path / "sys/escape", V2, 2 * GB, GB)
    assert memory._of_groups(tmp_path) == []


@pytest.mark.parametrize("lines", ["", "nonsense\n", "0::/../../escape\n"])
def test_without_limits(tmp_path, lines):
    told(tmp_path, lines)
    assert memory._of_groups(tmp_path) == []
    assert memory._of_groups(tmp_path / "nowhere") == []


def test_the_smaller_one_counts(monkeypatch):
    monkeypatch.setattr(memory, "_answer", (0.0, 0))
    monkeypatch.setattr(memory, "_of_groups", lambda: [GB, 2 * GB])
    monkeypatch.setattr(memory, "_of_machine", lambda: 10 * GB)
    assert memory.available_bytes() == GB and memory.allowed_bytes(None) == 0.8 * GB


def test_an_answer_serves_for_a_while(monkeypatch):
    """At least RECENT, and longer where the operating system takes long to tell."""
    clock, slow = [50.0], [0.0]

    def groups():
        asked.append(clock[0])
        clock[0] += slow[0]
        return [GB]

    asked = []
    monkeypatch.setattr(memory, "_answer", (0.0, 0))
    monkeypatch.setattr(memory, "_of_groups", groups)
    monkeypatch.setattr(memory, "_of_machine", lambda: 10 * GB)
    monkeypatch.setattr(memory.time, "monotonic", lambda: clock[0])
    for seconds in (0.0, 0.09, 0.02):  # the third is after RECENT
        clock[0] += seconds
        assert memory.available_bytes() == GB
    assert np.allclose(asked, [50.0, 50.11])
    slow[0] = 0.01
    for seconds in (0.2, 0.9, 0.2):
        clock[0] += seconds
        memory.available_bytes()
    assert np.allclose(asked[2:], [50.31, 51.42])


@pytest.mark.parametrize(("told", "expected"), [(True, 3 * GB), (False, memory.FALLBACK)])
def test_systems_without_meminfo(monkeypatch, told, expected):
    """Half of all memory where the system tells it, and a constant where it does not."""

    def sysconf(name):
        if not told:
            raise ValueError(name)
        return {"SC_PHYS_PAGES": 6 * GB // 1000, "SC_PAGE_SIZE": 1000}[name]

    monkeypatch.setattr(memory.Path, "exists", lambda self: False)
    monkeypatch.setattr(memory.os, "sysconf", sysconf)
    assert memory._of_machine() == expected


def test_memory_of_a_solve():
    """B and a part of it once more, all of it in single precision, with 16 MB; or a quarter of it and 100 vectors."""
    assert memory.of_solve(1000, 100) == pytest.approx(1.6 * 8e5 + 2**24)
    assert memory.of_solve(1000, 100, 4) == pytest.approx(2.0 * 4e5 + 2**24)
    assert memory.of_solve(100_000, 50) == pytest.approx(1.25 * 4e7 + 8e7)


@pytest.mark.parametrize("limit", [0, -1.0, True, "1 GB", 1j])
def test_what_is_no_number_of_bytes(limit):
    with pytest.raises(OptionError, match="memory_limit to be a number of bytes > 0, or None"):
        memory.allowed_bytes(limit)
    assert memory.allowed_bytes(2.5e9) == 2.5e9
