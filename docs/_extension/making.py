"""What pages ask for by ``<!-- make: ... -->``, as Markdown; `MAKERS` has the names."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

import roipool
from _extension import calls, sampling
from roipool import compat
from roipool._definitions import OPS

PROBE = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
PROBE_BOX = (1.0, 1.0, 3.0, 3.0)


def write_pictures(folder: Path) -> None:
    """Write the picture of every call."""
    folder.mkdir(exist_ok=True)
    for name in calls.CALLS:
        path, drawn = folder / f"{_slug(name)}.svg", sampling.picture(name)
        if not path.exists() or path.read_text() != drawn:
            path.write_text(drawn)


def _slug(name: str) -> str:
    return name.replace("[", "-").replace("]", "").replace(" ", "-")


def pictures(*names: str) -> str:
    """Return pictures side by side, each above its call."""
    blocks = [
        f"::::{{container}} picture\n"
        f"![Cells and samples of {name}](_generated/{_slug(name)}.svg)\n\n"
        f"`{calls.CALLS[name]}`\n::::\n"
        for name in names
    ]
    return "\n".join([":::::{container} pictures", *blocks, ":::::"])


def probe(*names: str) -> str:
    """Return a table of what systems answer to the probe, those that answer alike together."""
    alike: dict[tuple[float, ...], list[str]] = defaultdict(list)
    for name in names or calls.CALLS:
        if name != "roipool.roi_align_rotated":  # its box is another
            values = calls.answer(name, PROBE, PROBE_BOX).ravel()
            alike[tuple(float(f"{value:.6g}") for value in values)].append(name)
    rows = [
        f"| {', '.join(f'`{name}`' for name in same)} | {', '.join(f'{v:g}' for v in values)} |"
        for values, same in alike.items()
    ]
    return "\n".join(["| systems | four bins |", "|---|---|", *rows])


def systems() -> str:
    """Return the list of the pages of `roipool.compat`, with the first sentence of each module."""
    lines = []
    for module in compat.__all__:
        first = (inspect.getdoc(getattr(compat, module)) or "").partition("\n\n")[0]
        lines.append(f"- [{module}]({module}.md): {_markdown(' '.join(first.split()))}")
    return "\n".join(lines)


def _markdown(text: str) -> str:
    """Return a docstring's line with the code marks of Markdown."""
    return text.replace("``", "`")


def module(name: str) -> str:
    """Return the reference of a module."""
    return f"```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```"


def operations() -> str:
    """Return the reference of every operation of the core, in the order of their table."""
    parts = []
    for op in OPS.values():
        functions = filter(None, (op.forward, op.backward, op.backward_boxes))
        parts.append(f"## {op.forward}\n\n{_functions(*functions)}")
    parts.append(f"## multilevel_roi_align\n\n{_functions(*_multilevel())}")
    return "\n\n".join(parts)


def _multilevel() -> list[str]:
    return [name for name in roipool.__all__ if "multilevel" in name or name == "assign_levels"]


def settings() -> str:
    """Return the reference of all public functions that are no operations."""
    of_operations = {name for op in OPS for name in roipool.__all__ if name.startswith(op)}
    rest = [
        name
        for name in roipool.__all__
        if inspect.isfunction(getattr(roipool, name))
        and name not in of_operations.union(_multilevel())
    ]
    return _functions(*rest)


def examples() -> str:
    """Return every program of `examples/`."""
    parts = []
    for file in sorted((Path(__file__).parents[2] / "examples").glob("*.py")):
        title = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]
        listing = f"```{{literalinclude}} ../examples/{file.name}\n:language: python\n```"
        parts.append(f"## {file.name}\n\n{_markdown(title)}\n\n{listing}")
    return "\n\n".join(parts)


def _functions(*names: str) -> str:
    lines = [f".. autofunction:: roipool.{name}" for name in names]
    return "\n".join(["```{eval-rst}", *lines, "```"])


MAKERS: dict[str, Callable[..., str]] = {
    "pictures": pictures,
    "probe": probe,
    "systems": systems,
    "module": module,
    "operations": operations,
    "settings": settings,
    "examples": examples,
}
