"""Limits of processor time and memory, in the files of both versions of Linux's control groups.

`tests/faults/quota.sh` does the same in a real group, for which it must be root.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from _support.platforms import needs_linux

from roipool._limits import cpu_quota, lendable_memory

V1 = "4:memory:/\n3:cpuset:/\n2:cpu,cpuacct:{}\n1:name=systemd:/\n"
V2 = "0::{}\n"


def write_system(root: Path, groups: str, files: Mapping[str, str], policy: str = "0") -> None:
    """Write the files of a system with these groups, whose files are in ``/sys/fs/cgroup``."""
    texts = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    proc = {"proc/self/cgroup": groups, "proc/sys/vm/overcommit_memory": f"{policy}\n"}
    for name, text in {**proc, **texts}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def quota_of(root: Path, groups: str, files: Mapping[str, str]) -> int | None:
    """Return the quota that such a system grants."""
    write_system(root, groups, files)
    return cpu_quota(root)


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("max 100000\n", None),
        ("200000 100000\n", 2),
        ("250000 100000\n", 3),
        ("1000 100000\n", 1),
        ("50000 25000\n", 2),
    ],
)
def test_version_2(tmp_path: Path, text: str, quota: int | None) -> None:
    assert quota_of(tmp_path, V2.format("/user/job"), {"user/job/cpu.max": text}) == quota


def test_the_tightest_of_the_groups_around_it(tmp_path: Path) -> None:
    files = {
        "cpu.max": "800000 100000\n",
        "user/cpu.max": "300000 100000\n",
        "user/job/cpu.max": "max 100000\n",
        "user/other/cpu.max": "100000 100000\n",
    }
    assert quota_of(tmp_path, V2.format("/user/job"), files) == 3


@pytest.mark.parametrize(
    ("quota", "expected"), [("-1", None), ("0", None), ("400000", 4), ("150000", 2), ("1", 1)]
)
def test_version_1(tmp_path: Path, quota: str, expected: int | None) -> None:
    folder = "cpu,cpuacct/docker/1234"
    files = {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": "100000\n"}
    assert quota_of(tmp_path, V1.format("/docker/1234"), files) == expected


def test_a_container_that_sees_its_own_group_only(tmp_path: Path) -> None:
    files = {"cpu,cpuacct/cpu.cfs_quota_us": "200000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000"}
    assert quota_of(tmp_path, V1.format("/docker/1234"), files) == 2


def test_both_versions_at_once(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": "500000",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "unified/cpu.max": "max 100000",
    }
    assert quota_of(tmp_path, V1.format("/") + V2.format("/"), files) == 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "many few\n",
        "1 0\n",
        "1\n",
        "2 3 4\n",
        "\0",
        "-5 100000\n",
        "9" * 5000 + " 1",
        "9" * 400 + " 1",
    ],
)
def test_files_of_another_form_are_no_limit_and_no_error(tmp_path: Path, text: str) -> None:
    assert quota_of(tmp_path, V2.format("/"), {"cpu.max": text}) is None


@pytest.mark.parametrize("groups", ["", "0\n", "0:/\n", "0::\n", "\n", "0::/../../..\n"])
def test_groups_of_another_form(tmp_path: Path, groups: str) -> None:
    assert quota_of(tmp_path, groups, {}) is None


def test_a_system_without_groups(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


PHYSICAL = (
    os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if sys.platform == "linux" else 0
)


@needs_linux
@pytest.mark.parametrize(
    ("groups", "files", "memory"),
    [
        (V2.format("/job"), {}, PHYSICAL),
        (V2.format("/job"), {"job/memory.max": "max\n"}, PHYSICAL),
        (V2.format("/job"), {"job/memory.max": "1048576\n"}, 2**20),
        (V2.format("/job"), {"job/memory.max": "max\n", "memory.max": "4096\n"}, 4096),
        (V1.format("/"), {"memory/memory.limit_in_bytes": "8192\n"}, 8192),
        (V1.format("/"), {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, PHYSICAL),
        (V2.format("/"), {"memory.max": "-3\n"}, 0),
        (V2.format("/"), {"memory.max": "some\n"}, PHYSICAL),
    ],
)
def test_memory_of_the_tightest_group(
    tmp_path: Path, groups: str, files: dict[str, str], memory: int
) -> None:
    write_system(tmp_path, groups, files)
    assert lendable_memory(tmp_path) == memory


@needs_linux
def test_nothing_is_lent_where_addresses_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    write_system(tmp_path, V2.format("/"), {}, policy="2")
    assert lendable_memory(tmp_path) == 0
    write_system(tmp_path, V2.format("/"), {})
    assert lendable_memory(tmp_path) == PHYSICAL
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2**32, resource.RLIM_INFINITY))
    assert lendable_memory(tmp_path) == 0


def test_a_system_that_does_not_tell_lends_nothing(tmp_path: Path) -> None:
    assert lendable_memory(tmp_path) == 0
