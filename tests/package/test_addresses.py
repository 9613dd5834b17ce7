"""The project's addresses are only in `roipool/_addresses.py`."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

from _support.sources import SOURCES

from roipool import _addresses

SUFFIXES = set(".cff .css .h .html .js .json .md .py .pyx .sh .toml .yaml .yml".split())
FOLDERS = ("benchmarks", "conda", "docs", "examples", "roipool", "scripts", "tests", ".github")
# What a release's checklist says is of the time when there is one.
ALLOWED = {"docs/releasing.md", "roipool/_addresses.py", "tests/package/test_addresses.py"}

# An index's package, rather than a checkout; a repository of an account's; a page of ours.
FORBIDDEN = (
    re.compile(r"pip install [^|;&`\n]*(?<![\w./\"-])[\"']?roipool\b(?!\w*/)"),
    re.compile(r"\b(?!OWNER/)[\w.-]+/roipool(?:\.git\b|@|/blob|/tree|/issues|/\.github)"),
    re.compile(r"https?://[^\s\"'<>)]*\broipool\b"),
)


def texts() -> Iterator[tuple[str, str]]:
    """Yield the names and texts of all files that could hold an address."""
    files = [file for folder in FOLDERS for file in (SOURCES / folder).rglob("*")]
    for file in [*files, *SOURCES.iterdir()]:
        name = file.relative_to(SOURCES).as_posix()
        is_made = "/_build/" in name or "/_generated/" in name
        if file.suffix in SUFFIXES and name not in ALLOWED and not is_made:
            yield name, file.read_text(encoding="utf-8")


def test_no_other_file_has_an_address() -> None:
    found = [
        f"{name}: {match[0]}"
        for name, text in texts()
        for pattern in FORBIDDEN
        for match in pattern.finditer(text)
    ]
    assert found == []


def test_everything_follows_the_addresses() -> None:
    assert _addresses.links("", "") == {}
    links = _addresses.links("https://host/owner/roipool", "https://index/roipool")
    assert links["Source"] == "https://host/owner/roipool"
    assert links["Package index"] == "https://index/roipool"
    assert _addresses.install("cli", index="") == 'pip install ".[cli]" in a checkout of roipool'
    both = _addresses.install("cuda12", "cuda13", index="https://index/roipool")
    assert both == 'pip install "roipool[cuda12]" or "roipool[cuda13]"'


def test_the_build_reads_them_without_the_package() -> None:
    path = Path(_addresses.__file__)
    assert runpy.run_path(str(path))["links"]() == _addresses.links()
