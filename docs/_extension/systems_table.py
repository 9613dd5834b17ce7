"""The table of all systems on the page of implementations, from their rows in `roipool.systems`."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from roipool.systems import SYSTEMS, System, oracle_of

GOLDENS = Path(__file__).parents[2] / "tests" / "data" / "goldens"


def table() -> str:
    """Return the table: a line for each function or method, by the oracle that defines it."""
    functions: dict[tuple[str, str], list[System]] = defaultdict(list)
    for name, row in SYSTEMS.items():
        if row.forward.startswith("compat."):
            function = row.forward.removeprefix("compat.").removesuffix(".forward")
            functions[oracle_of(name).operation.forward, function].append(row)
    oracles = list(dict.fromkeys(oracle for oracle, _ in functions))
    of_files = releases()
    lines = [
        f"| `{oracle}` | `{function}` | {_gradients(rows)} | {_stored(rows, of_files)} | "
        f"{_installed(rows)} |"
        for (oracle, function), rows in sorted(
            functions.items(), key=lambda item: oracles.index(item[0][0])
        )
    ]
    head = "| oracle | function | gradients | stored results of | compared with installed |"
    return "\n".join([head, "|---|---|---|---|---|", *lines])


def releases() -> dict[str, str]:
    """Return the release of each file of stored results, from the table of their README."""
    text = (GOLDENS / "README.md").read_text()
    rows = re.findall(r"^\| (\w+)\.npz \| ([^|]+?) \|", text, re.MULTILINE)
    return {file: re.split(r", CPU|[,:] the text", release)[0] for file, release in rows}


def files_of(row: System) -> set[str]:
    """Return the files of stored results of a system."""
    return {answer.system for answer in row.goldens.values()} | {*row.stored}


def _gradients(rows: list[System]) -> str:
    fields = {"features": "backward", "boxes": "box_gradient", "offsets": "offset_gradient"}
    return ", ".join(
        word for word, field in fields.items() if any(getattr(row, field) for row in rows)
    )


def _stored(rows: list[System], of_files: dict[str, str]) -> str:
    return ", ".join(sorted({of_files[file] for row in rows for file in files_of(row)}))


def _installed(rows: list[System]) -> str:
    libraries = {name for row in rows for one in row.compared.values() for name in one.libraries}
    return ", ".join(sorted(libraries))
