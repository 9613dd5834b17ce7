"""The source tree of the tests, and names in its files."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["SOURCES", "nox_sessions"]

SOURCES = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())


def nox_sessions() -> set[str]:
    """Return the names of the sessions of noxfile.py."""
    text = (SOURCES / "noxfile.py").read_text(encoding="utf-8")
    return set(re.findall(r"^@nox\.session.*\n(?:@.*\n)*def (\w+)\(", text, re.MULTILINE))
