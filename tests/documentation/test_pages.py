"""The examples of every page of the documentation and of README do what they say."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

import roipool

SOURCES = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
EXAMPLE = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages_with_examples() -> list[str]:
    pages = [SOURCES / "README.md", *sorted((SOURCES / "docs").rglob("*.md"))]
    return [str(page.relative_to(SOURCES)) for page in pages if EXAMPLE.search(page.read_text())]


@pytest.mark.parametrize("page", pages_with_examples())
def test_examples(page: str) -> None:
    """All examples of a page are one session."""
    text = (SOURCES / page).read_text()
    session: dict[str, object] = {}
    failures: list[str] = []
    for match in EXAMPLE.finditer(text):
        first_line = text.count("\n", 0, match.start(1))
        example = doctest.DocTestParser().get_doctest(match[1], session, page, page, first_line)
        doctest.DocTestRunner(verbose=False).run(example, out=failures.append, clear_globs=False)
        session = example.globs
    assert not failures, "".join(failures)


def test_the_program_in_readme() -> None:
    program = re.search(r"^```python\n(.*?)^```$", (SOURCES / "README.md").read_text(), re.M | re.S)
    assert program
    names: dict[str, object] = {}
    exec(program[1], names)
    assert names["gradient"].shape == names["features"].shape  # type: ignore[attr-defined]


def test_the_migrated_call_in_readme() -> None:
    calls = re.findall(r"^```py\n(.*?)^```$", (SOURCES / "README.md").read_text(), re.M | re.S)
    (call,) = (call for call in calls if "compat" in call)
    names = {
        "roipool": roipool,
        "image": np.ones((1, 20, 30, 3), np.float32),
        "boxes": np.array([[0.1, 0.1, 0.6, 0.8]], np.float32),
        "box_indices": np.array([0]),
    }
    exec(call, names)
    assert np.array_equal(names["crops"], np.ones((1, 14, 14, 3)))


def test_there_are_examples() -> None:
    assert len(pages_with_examples()) >= 10
