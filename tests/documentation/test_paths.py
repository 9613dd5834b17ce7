"""Files that pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from _support.pages import SOURCES

NAMED = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|pyx|h|cpp|cu|js|sh|css|toml)|(?:[\w.-]+/)+)`")
OTHERS = {"windows.h"}  # files of a system
TO_FILL_IN = re.compile(r"\b[A-Z]+\.")  # FRAMEWORK.py
FOLDERS = (
    "roipool",
    "tests",
    "docs",
    "scripts",
    "benchmarks",
    "examples",
    "conda",
    ".github",
    ".ci",
)


def pages() -> list[Path]:
    return [*SOURCES.glob("*.md"), *SOURCES.glob("docs/**/*.md"), SOURCES / "benchmarks/README.md"]


def files() -> set[str]:
    """Return the tree's files and folders, relative to it."""
    found = {f"/{file.name}" for file in SOURCES.iterdir()}
    for folder in FOLDERS:
        found |= {
            f"/{path.relative_to(SOURCES).as_posix()}" for path in (SOURCES / folder).rglob("*")
        }
    return found


def test_files_that_pages_name_exist() -> None:
    if not (SOURCES / "docs").exists():
        pytest.skip("no documents in this tree")
    known = files()
    missing = [
        f"{page.relative_to(SOURCES)}: {name}"
        for page in pages()
        for name in sorted(set(NAMED.findall(page.read_text())) - OTHERS)
        if not TO_FILL_IN.search(name)
        and not any(path.endswith(f"/{name.rstrip('/')}") for path in known | {f"/{SOURCES.name}"})
    ]
    assert missing == []
