"""The quota of CPU time, in the files of both versions of Linux's control groups.

`tests/faults/quota.sh` does the same in a real group, for which it must be root.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from roipool._cpu_quota import cpu_quota

V1 = "4:memory:/\n3:cpuset:/\n2:cpu,cpuacct:{}\n1:name=systemd:/\n"
V2 = "0::{}\n"


def quota_of(root: Path, groups: str, files: Mapping[str, str]) -> int | None:
    """Return the quota that a system with these files in ``/sys/fs/cgroup`` grants."""
    texts = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in {"proc/self/cgroup": groups, **texts}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
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
    ("quota", "expected"), [("-1", None), ("400000", 4), ("150000", 2), ("1", 1)]
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
