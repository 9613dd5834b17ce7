"""Notebooks of tutorials, made from their pages.

    python docs/_extension/notebooks.py

writes them beside the pages; a test compares them, and another runs the pages' examples.
"""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parents[1] / "tutorials"
PAGES = ("crops",)
# A page's examples, its other blocks of code, and what only a site can show.
EXAMPLE = re.compile(r"^```pycon\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
OF_A_SITE = re.compile(
    r"<!-- make: .*? -->\n+|^This page is also .*\n+| This page is also .*", re.MULTILINE
)


def notebook(page: str) -> str:
    """Return a page of tutorials as a notebook, without results."""
    text = OF_A_SITE.sub("", (TUTORIALS / f"{page}.md").read_text())
    pieces = EXAMPLE.split(text)
    cells = [
        _cell("code", _code(piece)) if number % 2 else _cell("markdown", piece.strip())
        for number, piece in enumerate(pieces)
        if piece.strip()
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"{page}-{number}"
    about = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    whole = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1) + "\n"


def _code(examples: str) -> str:
    sources = [each.source for each in doctest.DocTestParser().get_examples(examples)]
    return "".join(sources).rstrip("\n")


def _cell(kind: str, text: str) -> dict[str, Any]:
    lines = text.splitlines(keepends=True)
    results: dict[str, Any] = {}
    if kind == "code":
        results = {"execution_count": None, "outputs": []}
    return {"cell_type": kind, "metadata": {}, **results, "source": lines}


if __name__ == "__main__":
    for each in PAGES:
        (TUTORIALS / f"{each}.ipynb").write_text(notebook(each))
