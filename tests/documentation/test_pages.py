"""The examples of all documentation pages and of the README print the shown output."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from _extension import notebooks
from _support.pages import SOURCES, check_examples, pages_with_examples

import roipool


@pytest.mark.parametrize("page", pages_with_examples(of_torch=False))
def test_examples(page: str) -> None:
    """All examples of a page are one session."""
    check_examples(page)


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
    assert len(pages_with_examples(of_torch=False)) >= 10


@pytest.mark.parametrize("page", notebooks.PAGES)
def test_notebooks_are_their_pages(page: str) -> None:
    """The examples of a page are tested; its notebook has the same."""
    committed = (SOURCES / "docs" / "tutorials" / f"{page}.ipynb").read_text()
    assert committed == notebooks.notebook(page), "run python docs/_extension/notebooks.py"
    names: dict[str, object] = {}
    for cell in json.loads(committed)["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
