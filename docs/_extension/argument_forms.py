"""What arguments an implementation of each semantics gets: seen by one that only looks at them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool.systems import SEMANTICS, shown_name
from roipool.systems.case import Case
from roipool.tools.conformance.cases import KINDS_IN_WORDS, box_gradient_of
from roipool.tools.conformance.implementations import library_of
from roipool.tools.libraries.functions import Misbehaviour
from roipool.verification.call import run
from roipool.verification.options import drawn_options

COORDINATES = {"x1": 1.0, "y1": 2.0, "x2": 6.0, "y2": 5.0}
SHAPE = (1, 3, 9, 11)  # N, C, H, W
TURNED = ("centre x", "centre y", "width", "height", "angle")


class _Looker:
    """An implementation that takes any option, keeps its arguments and computes nothing."""

    def __init__(self) -> None:
        self.given: list[tuple[str, Any]] = []
        self.options: dict[str, Any] = {}

    def parameters(self, which: str) -> None:
        """Return None: it takes all that there is."""

    def call(
        self, which: str, given: Sequence[tuple[str, Any]], options: dict[str, Any]
    ) -> Sequence[Any]:
        """Keep the arguments."""
        self.given, self.options = list(given), options
        raise Misbehaviour("raises", "looks only")


def table() -> str:
    """Return the arguments by position and by name, and the form of features and boxes."""
    rows = []
    for row in SEMANTICS:
        seen = _seen(row)
        arguments = [f"`{name}`" for name, _ in seen.given]
        options = [f"`{name}=`" for name in seen.options]
        arrays = dict(seen.given)
        (maps, _), (boxes, coordinates) = seen.given[:2]
        form = f"`{boxes}` {_form(coordinates)}"
        for name, value in list(arrays.items())[2:]:
            if isinstance(value, np.ndarray):
                form += f", `{name}` (K,)"
        if SEMANTICS[row].layouts == ("NHWC",):
            form += f"; `{maps}` (N, H, W, C)"
        rows.append(f"| `{shown_name(row)}` | {', '.join([*arguments, *options])} | {form} |")
    return "\n".join(["| semantics | by position, then by name | boxes |", "|---|---|---|", *rows])


def _seen(row: str) -> _Looker:
    operation = SEMANTICS[row]
    rng = np.random.default_rng(0)
    options = drawn_options(rng, operation)
    if "spatial_scale" in options:
        options["spatial_scale"] = 1.0
    table = np.array([[0.0, *(COORDINATES[name] for name in ("x1", "y1", "x2", "y2"))]])
    case = Case(
        row,
        np.zeros(SHAPE),
        np.zeros((1, SHAPE[1], 2, 2)),
        table,
        options=options,
        layout=operation.layouts[0],
    )
    looker = _Looker()
    forward = operation._replace(backward="", box_gradient="")
    try:
        run(case, library_of(looker, forward, {}, row), forward)
    except Misbehaviour:
        return looker
    raise AssertionError(f"{row} calls nothing")


def _form(boxes: Any) -> str:
    """Return a table of boxes' shape and columns, told by the numbers in it."""
    columns = boxes.shape[1]
    if columns == 6:
        return f"(K, 6): image, {', '.join(TURNED)}"
    names = ["image"] * (columns - 4) + _names(boxes[0, columns - 4 :].tolist())
    return f"(K, {columns}): {', '.join(names)}"


def _names(numbers: Sequence[float]) -> list[str]:
    by_value = {value: name for name, value in COORDINATES.items()}
    if all(number in by_value for number in numbers):
        return [by_value[number] for number in numbers]
    last = {"x": SHAPE[3] - 1, "y": SHAPE[2] - 1}
    fractions = {value / last[name[0]]: name for name, value in COORDINATES.items()}
    values = np.array(list(fractions))
    nearest = [float(values[np.argmin(np.abs(values - number))]) for number in numbers]
    cells = {"x": "W", "y": "H"}
    return [f"{name}/({cells[name[0]]} - 1)" for name in (fractions[one] for one in nearest)]


def box_gradients() -> str:
    """Return whose arguments a gradient of boxes has, by semantics."""
    by_function: dict[str, list[str]] = defaultdict(list)
    for row in SEMANTICS:
        if function := box_gradient_of(row):
            by_function[function].append(f"`{shown_name(row)}`")
    return "\n".join(
        f"- `roipool.{function}`: {', '.join(rows)}" for function, rows in by_function.items()
    )


def kinds() -> str:
    """Return the kinds of calls that can be left out."""
    rows = [f"| `{name}` | {words} |" for name, words in KINDS_IN_WORDS.items()]
    return "\n".join(["| kind | what the call has |", "|---|---|", *rows])
