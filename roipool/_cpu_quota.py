"""How much processor time Linux's control groups grant: a container's limit, for one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def cpu_quota(root: Path = Path("/")) -> int | None:
    """Return the processors of this process' quota, rounded up; None without a known limit.

    `root` is the folder that holds ``proc`` and ``sys``.
    """
    try:
        quotas = [quota for folder in _groups(root) if (quota := _quota_of(folder)) is not None]
    except (OSError, ValueError, ArithmeticError):  # no Linux, or files that this does not know
        return None
    return math.ceil(min(quotas)) if quotas else None


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of the groups that bound this process: its own, and those around it.

    In a container, the names of groups may be those outside, of which it sees a part.
    """
    mounts = root / "sys" / "fs" / "cgroup"
    for line in (root / "proc" / "self" / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            tops = [mounts, mounts / "unified"]
        elif "cpu" in controllers.split(","):
            tops = [mounts / controllers, mounts / "cpu"]
        else:
            continue
        name = PurePosixPath(path.lstrip("/"))
        for top in tops:
            for group in (name, *name.parents):
                yield top / group


def _quota_of(folder: Path) -> float | None:
    """Return the processors' time that a group has; None without a limit of its own."""
    if (folder / "cpu.max").is_file():
        quota, period = (folder / "cpu.max").read_text().split()
    elif (folder / "cpu.cfs_quota_us").is_file():
        quota = (folder / "cpu.cfs_quota_us").read_text()
        period = (folder / "cpu.cfs_period_us").read_text()
    else:
        return None
    if quota == "max" or int(quota) <= 0:  # the second is version 1's way to say the same
        return None
    return int(quota) / int(period)
