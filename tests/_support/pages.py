"""Runs the examples of documentation pages, as one session per page."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

SOURCES = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
EXAMPLE = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages_with_examples(*, of_torch: bool) -> list[str]:
    """Return the pages with examples that use torch, or that do not."""
    pages = [SOURCES / "README.md", *sorted((SOURCES / "docs").rglob("*.md"))]
    found = {str(page.relative_to(SOURCES)): page.read_text() for page in pages}
    return [
        page
        for page, text in found.items()
        if EXAMPLE.search(text) and ("\n>>> import torch\n" in text) == of_torch
    ]


def check_examples(page: str) -> None:
    """Run the examples of a page; skip if they need Pillow and it is missing."""
    text = (SOURCES / page).read_text()
    if "\n>>> from PIL import" in text:
        pytest.importorskip("PIL")
    session: dict[str, object] = {}
    failures: list[str] = []
    for match in EXAMPLE.finditer(text):
        first_line = text.count("\n", 0, match.start(1))
        example = doctest.DocTestParser().get_doctest(match[1], session, page, page, first_line)
        doctest.DocTestRunner(verbose=False).run(example, out=failures.append, clear_globs=False)
        session = example.globs
    assert not failures, "".join(failures)
