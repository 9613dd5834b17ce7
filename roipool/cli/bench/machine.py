"""What a measurement must say of the machine and the software it was taken with."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import roipool
from roipool import _cpu

__all__ = ["facts"]

_CPUINFO = Path("/proc/cpuinfo")


def facts() -> dict[str, str | int | None]:
    """Return the facts by name; the commit only where this is a git checkout of roipool."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "cpu": _cpu_name(),
        "cores": _cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "instruction_set": _cpu.instruction_set(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "roipool": roipool.__version__,
        "commit": _commit(),
    }


def _cpu_name() -> str:
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return " ".join(value.split())
    return platform.processor() or platform.machine()


def _cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _commit() -> str | None:
    """Return the commit, with ``-dirty`` after it where tracked files were changed."""
    here = Path(__file__).parent
    tracked = ["git", "-C", str(here), "ls-files", "--error-unmatch", "machine.py"]
    described = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        subprocess.run(tracked, capture_output=True, check=True)
        run = subprocess.run(
            ["git", "-C", str(here), *described], capture_output=True, check=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout.strip()
