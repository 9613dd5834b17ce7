"""Generates the tables of docs/frameworks.md from the tests, so that a test proves every cell."""

from __future__ import annotations

import importlib.util
import operator
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .cases import OperationCase

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "frameworks.md"

# For each column, the tests ("module.function" or "module.Class.function") and the cell's word;
# the first test that runs with an operation determines its cell.
Columns = Mapping[str, Mapping[str, str]]


def written(name: str) -> str:
    """Return a table of the document."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    text = DOCUMENT.read_text()
    return text[text.index(begin) + len(begin) : text.index(end)]


def made(prefix: str, columns: Columns, rows: Iterable[OperationCase]) -> str:
    """Generate the table from the tests in files whose names begin with `prefix`."""
    cases = {name: _cases_of(prefix, name) for column in columns.values() for name in column}
    lines = ["| operation | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        if row.adaptive:
            continue
        cells = [
            next((word for name, word in column.items() if row.name in cases[name]), "untested")
            for column in columns.values()
        ]
        lines.append(f"| `{row.op.forward}`, {row.name.split(', ')[1]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cases_of(prefix: str, name: str) -> set[str]:
    """Return the names of the operations with which a test runs."""
    module, _, function = name.partition(".")
    path = ROOT / "tests" / "front_ends" / f"{prefix}{module}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    for mark in operator.attrgetter(function)(loaded).pytestmark:
        if mark.name != "parametrize":
            continue
        names = [mark.args[0]] if isinstance(mark.args[0], str) else mark.args[0]
        if "case" in names:
            place = names.index("case")
            rows = [getattr(row, "values", row) for row in mark.args[1]]
            return {(row[place] if isinstance(row, tuple) else row).name for row in rows}
    raise AssertionError(f"{name} is run with no operations")
