"""Marks that skip tests if the system or an installed package lacks a requirement."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import pytest

__all__ = ["needs_fork", "needs_links", "needs_linux", "needs_matplotlib", "needs_posix"]


def _has_links() -> bool:
    """Return whether this user can create symbolic links."""
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / "link"
        try:
            link.symlink_to("target")
        except OSError:
            return False
        return link.is_symlink()


needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="--save needs matplotlib"
)
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="this system is not Linux")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
needs_posix = pytest.mark.skipif(
    sys.platform == "win32",
    reason="Windows has other file names, permissions, limits, terminals and scripts",
)
needs_links = pytest.mark.skipif(not _has_links(), reason="no symbolic links for this user here")
