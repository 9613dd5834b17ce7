"""The figure: the time of each library relative to roipool.

It has one row for each workload, with the forward on the left and the backward on the right, and a
bar for each library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from harness.measure import Row, TimedCase
from roipool.cli.text import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "save"]

# Colours that are distinct for most kinds of colour blindness (Okabe and Ito).
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
_QUIET = "#555555"

# Inches.
_BAR = 0.15
_LEAST_BARS = 2  # the height of a label of two lines
_ROW_GAP = 0.14
_PANEL = 4.0
_LABELS = 2.3
_PANEL_GAP = 0.35
_TOP = 1.15
_BOTTOM = 0.85
_RIGHT = 0.5


def draw(cases: list[TimedCase], machine: dict[str, Any], peers: list[str]) -> Figure:
    """Draw the ratios on a logarithmic axis.

    Parameters
    ----------
    cases : list of Case
        The result.
    machine : dict
        The facts shown below the figure.
    peers : list of str
        All supported libraries; a library's index determines its colour.

    Returns
    -------
    matplotlib.figure.Figure
        Independent of pyplot, and of the user's matplotlib settings.
    """
    import matplotlib
    from matplotlib.figure import Figure

    rows = _rows(cases)
    colours = {
        name: _COLOURS[place % len(_COLOURS)]
        for place, name in enumerate(peers)
        if any(_row(case, name) for case in cases)
    }
    heights = [_BAR * max(_bars(pair), _LEAST_BARS) + _ROW_GAP for pair in rows.values()]
    width = _LABELS + 2 * _PANEL + _PANEL_GAP + _RIGHT
    height = _TOP + sum(heights) + _BOTTOM
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        figure = Figure(figsize=(width, height), facecolor="white")
        ratios = [c.ratio(row) for c in cases for name in colours if (row := _row(c, name))]
        limits = min([0.5, *ratios]) * 0.9, max([5, *ratios]) * 2
        for side, title in enumerate(("forward", "backward")):
            left = _LABELS + side * (_PANEL + _PANEL_GAP)
            place = (left / width, _BOTTOM / height, _PANEL / width, sum(heights) / height)
            axes = figure.add_axes(place)
            _draw_panel(axes, [pair[side] for pair in rows.values()], heights, colours)
            _dress(axes, title, list(rows) if side == 0 else [], heights, limits)
        _write_around(figure, cases, colours, machine)
    return figure


def save(figure: Figure, stream: BinaryIO) -> None:
    """Write the figure as PNG."""
    figure.savefig(stream, format="png", dpi=120)


def _rows(cases: list[TimedCase]) -> dict[str, list[TimedCase | None]]:
    """Return the forward and backward of each row by label; labels name only what varies."""
    keys = [_key(case) for case in cases]
    varying = [len(set(part)) > 1 for part in zip(*keys, strict=True)]
    rows: dict[str, list[TimedCase | None]] = {}
    for case, key in zip(cases, keys, strict=True):
        parts = [part for part, varies in zip(key, varying, strict=True) if varies]
        label = "\n".join([case.workload.title, ", ".join(parts)]).strip()
        rows.setdefault(label, [None, None])[case.backward] = case
    return rows


def _key(case: TimedCase) -> tuple[str, ...]:
    threads = f"{case.threads} thread{'s' if case.threads > 1 else ''}"
    return case.dtype, case.workload.layout, threads, case.clock


def _row(case: TimedCase | None, library: str) -> Row | None:
    """Return a library's row, if it took part."""
    rows = [row for row in case.rows if row.library == library] if case else []
    return rows[0] if rows and not rows[0].absent else None


def _bars(pair: list[TimedCase | None]) -> int:
    return max(sum(not row.absent for row in case.rows[1:]) if case else 0 for case in pair)


def _draw_panel(
    axes: Axes, cases: list[TimedCase | None], heights: list[float], colours: dict[str, str]
) -> None:
    """Draw the bars of each row from the top down, without space for absent libraries."""
    tops = np.concatenate([[0], np.cumsum(heights)[:-1]])
    for case, top in zip(cases, tops, strict=True):
        middle = top + (_ROW_GAP + _BAR) / 2
        for library, colour in colours.items():
            row = _row(case, library)
            if case is None or row is None:
                continue
            ratio = case.ratio(row)
            axes.barh(middle, ratio - 1, 0.85 * _BAR, left=1, color=colour)
            axes.annotate(
                short(ratio, 2 if ratio < 10 else 3) + _star(row),
                (max(ratio, 1), middle),
                (3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
            )
            middle += _BAR


def _star(row: Row) -> str:
    return "" if row.agreement is None or row.agreement.holds else "*"


def _dress(
    axes: Axes, title: str, labels: list[str], heights: list[float], limits: tuple[float, float]
) -> None:
    """Draw the axis, the lines between rows, and the names of the rows."""
    edges = np.concatenate([[0], np.cumsum(heights)])
    axes.set_ylim(edges[-1], 0)
    axes.set_xscale("log")
    axes.set_xlim(limits)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.tick_params(labelsize=8, left=False)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    for edge in edges[1:-1]:
        axes.axhline(edge, color="#eeeeee", linewidth=0.8)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_yticks((edges[:-1] + edges[1:])[: len(labels)] / 2, labels)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _write_around(
    figure: Figure, cases: list[TimedCase], colours: dict[str, str], machine: dict[str, Any]
) -> None:
    """Put the title and the legend above, the machine and the versions below."""
    width, height = figure.get_size_inches()
    left = 0.15 / width
    figure.text(
        left,
        1 - 0.22 / height,
        "Time relative to roipool (longer bar: slower library; log scale)",
        fontsize=12,
        va="top",
    )
    place = left
    if not colours:
        figure.text(place, 1 - 0.58 / height, "no other library took part", fontsize=9, va="top")
    for library, colour in colours.items():
        figure.text(place, 1 - 0.58 / height, "\u25a0", color=colour, fontsize=11, va="top")
        figure.text(place + 0.16 / width, 1 - 0.6 / height, library, fontsize=9, va="top")
        place += (0.35 + 0.085 * len(library)) / width
    common = {part for case in cases[:1] for part in _key(case) if part != "wall"}
    for case in cases:
        common &= set(_key(case))
    versions = dict.fromkeys(row.version for c in cases for row in c.rows[1:] if row.version)
    facts = [machine["cpu"], f"{machine['cores']} cores", machine["instruction_set"]]
    below = (
        ", ".join([*facts, *sorted(common), machine["date"]])
        + ("; * results differ" if any(_star(row) for c in cases for row in c.rows) else ""),
        ", ".join([f"roipool {machine['roipool']}", *versions]),
    )
    for number, text in enumerate(below):
        position = (0.4 - 0.18 * number) / height
        figure.text(left, position, text, fontsize=6.5, color=_QUIET, va="top")
