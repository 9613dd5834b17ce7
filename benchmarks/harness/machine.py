"""Describes the machine and software of a measurement."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import roipool
from roipool.cli import info

__all__ = ["facts"]


def facts() -> dict[str, str | int | None]:
    """Return facts by name; the commit is None outside a git checkout of roipool."""
    found = info.facts()
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "cpu": found["processor"],
        "cores": found["processors_usable"],
        "system": f"{platform.system()} {platform.machine()}",
        "instruction_set": found["instruction_set"],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "roipool": roipool.__version__,
        "commit": _commit(),
    }


def _commit() -> str | None:
    """Return the commit, followed by ``-dirty`` if the package's files have changed."""
    package = Path(roipool.__file__).parent
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None  # not a checkout, or another project's
    changed = _git(package, "diff", "--quiet", "HEAD", "--", ".") is None
    return f"{_git(package, 'rev-parse', 'HEAD')}{'-dirty' if changed else ''}"


def _git(folder: Path, *arguments: str) -> str | None:
    """Return git's output; None if git fails or is not installed."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
