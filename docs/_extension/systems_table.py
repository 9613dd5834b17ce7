"""The table of all systems on the page of implementations, from their rows in `roipool.systems`."""

from __future__ import annotations

import functools
import inspect
import re
from collections import defaultdict
from pathlib import Path

import roipool
from roipool._gradients import gradient_names, published_of
from roipool.systems import SYSTEMS, System, oracle_of
from roipool.tools.random_calls.front_ends import DIFFERENTIATED

COLUMNS = (
    "oracle",
    "function",
    "gradients",
    "stored results of",
    "compared with installed",
)
GOLDENS = Path(__file__).parents[2] / "tests" / "data" / "goldens"


def table() -> str:
    """Return the table: a line for each function or method, by the oracle that defines it."""
    functions: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, row in SYSTEMS.items():
        function = row.forward.removeprefix("compat.").removesuffix(".forward")
        functions[oracle_of(name).operation.forward, function].append(name)
    oracles = list(dict.fromkeys(oracle for oracle, _ in functions))
    of_files = releases()
    lines = []
    for (oracle, function), names in sorted(
        functions.items(), key=lambda item: oracles.index(item[0][0])
    ):
        rows = [SYSTEMS[name] for name in names]
        cells = _gradients(rows), _stored(rows, of_files), _installed(rows)
        lines.append(f"| {' | '.join([f'`{oracle}`', f'`{function}`', *cells])} |")
    head = f"| {' | '.join(COLUMNS)} |"
    return "\n".join([head, "|---" * len(COLUMNS) + "|", *lines])


def gradients() -> str:
    """Return the table of the gradients of every function and layer of `roipool.compat`.

    It has a column for each library that differentiates.
    """
    libraries = [NAMES[library] for library in DIFFERENTIATED]
    head = ["function", "by", "NumPy, CuPy", *libraries]
    forwards = dict.fromkeys(row.forward for row in SYSTEMS.values() if "." in row.forward)
    lines = [line for name in forwards for line in _gradients_of(name, len(libraries))]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines])


NAMES = {"torch": "PyTorch", "jax": "JAX"}


def _gradients_of(forward: str, libraries: int) -> list[str]:
    """Return a line for each argument of a function or layer that has a gradient."""
    *path, last = forward.split(".")
    parent = functools.reduce(getattr, path, roipool)
    function, shown = getattr(parent, last), forward.removeprefix("compat.")
    how = "derivative" if published_of(function) is None else "published"
    by = gradient_names(function) or {}
    if inspect.isclass(parent):  # a layer: those without a gradient have their functions'
        _, features, *_ = inspect.signature(function).parameters
        by, shown = {features: "backward"} if hasattr(parent, "backward") else {}, shown[:-8]
        if not by:
            return []
    return [
        f"| `{shown}` | `{argument}` | `{gradient}` | {' | '.join([how] * libraries)} |"
        for argument, gradient in by.items()
    ] or [f"| `{shown}` | | none | {' | '.join(['error'] * libraries)} |"]


def releases() -> dict[str, str]:
    """Return the release of each file of stored results, from the table of their README."""
    text = (GOLDENS / "README.md").read_text()
    rows = re.findall(r"^\| (\w+)\.npz \| ([^|]+?) \|", text, re.MULTILINE)
    return {file: re.split(r", CPU|[,:] the text", release)[0] for file, release in rows}


def files_of(row: System) -> set[str]:
    """Return the files of stored results of a system."""
    return {answer.file for answer in row.goldens.values()} | {*row.stored}


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
