"""What a measurement must say of the machine and the software it was taken with."""

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
    """Return the facts by name; the commit only where this is a git checkout of roipool."""
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
    """Return the commit, with ``-dirty`` after it where the package's files were changed."""
    package = Path(roipool.__file__).parent
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None  # not a checkout, or another project's
    changed = _git(package, "diff", "--quiet", "HEAD", "--", ".") is None
    return f"{_git(package, 'rev-parse', 'HEAD')}{'-dirty' if changed else ''}"


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints; None if it fails or is not there."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
