"""How much processor time and memory Linux grants the process, such as a container's limits."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath


def cpu_quota(root: Path = Path("/")) -> int | None:
    """Return the processors of this process' quota, rounded up; None without a known limit.

    `root` is the folder that holds ``proc`` and ``sys``.
    """
    quota = _least(_quota_of, "cpu", root)
    return None if quota is None else math.ceil(quota)


def lendable_memory(root: Path = Path("/")) -> int:
    """Return how many bytes the process may use, if idle pages keep none from others; else 0.

    They do where the system counts addresses rather than pages: without overcommitment, or with a
    limit of the process' own.
    """
    try:
        import resource

        addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
        policy = (root / "proc" / "sys" / "vm" / "overcommit_memory").read_text().strip()
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError, ValueError):  # no Linux
        return 0
    if policy == "2" or addresses != resource.RLIM_INFINITY:
        return 0
    limit = _least(_memory_of, "memory", root)
    return max(0, memory if limit is None else min(memory, int(limit)))


def _least(limit_of: Callable[[Path], float | None], controller: str, root: Path) -> float | None:
    """Return the least limit of the groups that bound this process; None without a known one."""
    try:
        groups = _groups(controller, root)
        limits = [limit for folder in groups if (limit := limit_of(folder)) is not None]
    except (OSError, ValueError, ArithmeticError):  # no Linux, or files that this does not know
        return None
    return min(limits) if limits else None


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of the groups that bound this process: its own, and those around it.

    In a container, the names of groups may be those outside, of which it sees a part.
    """
    mounts = root / "sys" / "fs" / "cgroup"
    for line in (root / "proc" / "self" / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            tops = [mounts, mounts / "unified"]
        elif controller in controllers.split(","):
            tops = [mounts / controllers, mounts / controller]
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


def _memory_of(folder: Path) -> float | None:
    """Return the bytes that a group may use; None without a limit of its own."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        if (folder / name).is_file():
            limit = (folder / name).read_text().strip()
            return None if limit == "max" else int(limit)
    return None
