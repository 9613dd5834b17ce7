"""The table of docs/frameworks.md: every cell is a test's own list of operations."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from _support.tensors import ALL_CASES, Case

DOCUMENT = Path(__file__).parents[2] / "docs" / "frameworks.md"
BEGIN, END = "<!-- torch: begin -->\n", "<!-- torch: end -->"

# A column, the test whose operations have it, and others by what the cell then says.
COLUMNS: dict[str, dict[str, str]] = {
    "no copy, half types": {
        "values.test_values_and_gradient_are_those_of_numpy": "yes",
        "pyramids.test_values_and_gradients_are_those_of_numpy": "yes",
    },
    "gradient": {"derivatives.test_gradient_of_features": "yes"},
    "box gradient": {
        "derivatives.test_gradient_of_boxes": "yes",
        "derivatives.test_whole_cells_do_not_move_with_boxes": "zero",
        "derivatives.test_derivatives_of_a_maximum_of_samples_that_are_refused": "error",
    },
    "double backward": {
        "derivatives.test_second_derivatives": "yes",
        "derivatives.test_derivatives_of_a_maximum_of_samples_that_are_refused": "error",
    },
    "forward mode": {
        "derivatives.test_forward_mode": "yes",
        "derivatives.test_derivatives_of_a_maximum_of_samples_that_are_refused": "error",
    },
    "torch.func": {
        "derivatives.test_torch_func": "yes",
        "derivatives.test_gradient_of_features": "grad",
    },
    "vmap": {"derivatives.test_vmap_is_a_loop": "yes"},
    "compile": {"programs.test_compiled_forward_and_backward": "yes"},
    "export": {"programs.test_exported_program_and_its_gradient": "yes"},
}


def operations_of(name: str) -> list[Case]:
    """Return the operations that a test is run with."""
    module, _, function = name.partition(".")
    path = Path(__file__).parent / f"test_torch_{module}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    marks = getattr(loaded, function).pytestmark
    (cases,) = (mark.args[1] for mark in marks if mark.args and mark.args[0] == "case")
    return cases


def table() -> str:
    """Return the table as the tests have it."""
    cases = {name: operations_of(name) for column in COLUMNS.values() for name in column}
    lines = ["| operation | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for case in ALL_CASES:
        if case.adaptive:
            continue
        cells = [
            next((word for name, word in column.items() if case in cases[name]), "?")
            for column in COLUMNS.values()
        ]
        lines.append(f"| `{case.op.forward}`, {case.name.split(', ')[1]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_table_is_what_tests_show() -> None:
    text = DOCUMENT.read_text()
    written = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert written == table()
    assert "?" not in written
