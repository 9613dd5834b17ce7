"""The figure: the picture with its boxes, and the results of each system for some of the boxes.

Positions are in inches from the top left corner, because the number of rows and their heights
depend on the result and nothing may overlap.
"""

from __future__ import annotations

import textwrap
import warnings
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from roipool.cli.text import printable, short
from roipool.tools.compare import slices
from roipool.tools.compare.canvas import (
    ACCENT,
    CHOSEN,
    View,
    difference_colours,
    difference_scale,
    draw_boxes,
    enlarge,
)
from roipool.tools.compare.differences import Group, PartComparison, distance
from roipool.tools.compare.inputs import FeatureMap
from roipool.tools.compare.selection import most_telling, telling_channel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "save"]

FloatArray = NDArray[np.float32]

_MAX_SHOWN = 3
_MAX_DRAWN = 300

# Inches.
_MARGIN = 0.4
_TITLE = 0.55
_LEFT = 5.0
_LEFT_TALLEST = 6.0
_GUTTER = 0.5
_NAMES = 2.45
_TILE = 1.0
_GAP = 0.1
_COLUMN = 2 * _TILE + _GAP
_COLUMN_GAP = 0.35
_CROP = 1.75
_CAPTION = 0.22
_LINE = 0.16
_ROW_GAP = 0.16

_NAME_WIDTH = 31  # characters
_QUIET = "#555555"

_HOW_TO_READ = """\
How to read this
Each row is a group of systems whose results are equal bit for bit.
Each pair of columns is one box, shown enlarged with its bins at the top.
The left grid of a pair shows the pooled values, one square per bin;
the right grid shows the difference of each bin to the reference."""
_HOW_TO_READ_SLICES = f"""{_HOW_TO_READ}
Shown are the planes in the middle of each box and of its bins;
the greatest difference is that of all its bins."""
_READ_LINE = 0.185


def draw(
    comparison: PartComparison, features: FeatureMap, rois: FloatArray, title: str = ""
) -> Figure:
    """Draw the figure.

    Returns
    -------
    matplotlib.figure.Figure
        Independent of pyplot, and of the user's matplotlib settings.

    Raises
    ------
    ValueError
        If the map has no pixel to show.
    """
    import matplotlib

    if features.values.size == 0:
        raise ValueError(f"{features.name}: the {features.kind} is empty, there is nothing to draw")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        return _Sheet(comparison, features, rois, title).figure


def save(figure: Figure, stream: BinaryIO, kind: str) -> None:
    """Write a figure as ``png``, ``pdf`` or ``svg``."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        # Characters of a file name that the font lacks are drawn as boxes, without a warning.
        warnings.simplefilter("ignore")
        figure.savefig(stream, format=kind, dpi=120)


def _name_lines(group: Group) -> list[str]:
    """Return the names of a group in lines that fit, with the part after @ on its own line.

    A longer function's name is on a line of its own, too.
    """
    lines: list[str] = []
    for name in group.members:
        whole = name if len(name) <= _NAME_WIDTH else name.replace("@", " @").replace("[", " [")
        if max(map(len, whole.split())) > _NAME_WIDTH:
            whole = whole.replace(".", ". ")
        first, *rest = textwrap.wrap(printable(whole), _NAME_WIDTH) or [""]
        lines += [first, *(f"  {line}" for line in rest)]
    return lines


class _Sheet:
    """A figure in progress: its content and layout."""

    def __init__(
        self, comparison: PartComparison, features: FeatureMap, rois: FloatArray, title: str
    ) -> None:
        from matplotlib.figure import Figure

        self.comparison = comparison
        self.features = features
        self.rois = slices.flattened(rois, features)
        self.shown = most_telling(comparison, rois, _MAX_SHOWN)
        image = int(rois[self.shown[0], 0]) if self.shown else 0
        channel = telling_channel(comparison, self.shown)
        self.planes = {k: slices.middle_plane(rois[k], features) for k in self.shown}
        self.views = {k: View(features, image, channel, at) for k, at in self.planes.items()}
        plane = self.planes[self.shown[0]] if self.shown else 0
        self.view = View(features, image, channel, plane)
        self.here = self._outlined(rois, image, plane)
        home = comparison.reference_group
        nearest_first = sorted(
            range(len(comparison.groups)),
            key=lambda group: (group != home, comparison.between(group, home).mean),
        )
        self.order = nearest_first
        self.groups = [comparison.groups[group] for group in nearest_first]
        self.scale = difference_scale(comparison)
        rows, columns = comparison.groups[0].output.shape[-2:]
        self.tile_height: float = _TILE * min(1.0, rows / columns)
        self.heights = [self._row_height(group) for group in self.groups]
        self.width = 2 * _MARGIN + _LEFT + _GUTTER + _NAMES
        self.width += len(self.shown) * (_COLUMN + _COLUMN_GAP)
        self.height = 2 * _MARGIN + _TITLE + max(self._left_height(), self._right_height())
        self.figure = Figure(figsize=(self.width, self.height), facecolor="white")
        self.text(_MARGIN, _MARGIN + 0.1, title, size=15, weight="bold")
        self._draw_left()
        self._draw_right()

    def _outlined(self, rois: FloatArray, image: int, plane: int) -> list[int]:
        """Return the boxes that are drawn in the view of the whole."""
        drawable = (rois[:, 0] == image) & np.isfinite(rois).all(axis=1)
        drawable &= slices.are_crossing(rois, self.features, plane)
        shown = [index for index in self.shown if drawable[index]]
        return sorted({*shown, *(int(index) for index in np.flatnonzero(drawable)[:_MAX_DRAWN])})

    @property
    def _how_to_read(self) -> str:
        return _HOW_TO_READ_SLICES if self.features.is_volume else _HOW_TO_READ

    @property
    def _more_to_read(self) -> float:
        """Height of the lines that are only for volumes."""
        return _READ_LINE * (self._how_to_read.count("\n") - _HOW_TO_READ.count("\n"))

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Add axes at ``(x, y)`` inches from the top left corner."""
        bottom = self.height - y - height
        rect = (x / self.width, bottom / self.height, width / self.width, height / self.height)
        axes = self.figure.add_axes(rect)
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color("#999999")
            spine.set_linewidth(0.6)
        return axes

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """Write ``text`` with its top left corner at ``(x, y)`` inches."""
        style = {"va": "top", "ha": "left", "size": 9, "parse_math": False, **style}
        self.figure.text(x / self.width, 1 - y / self.height, text, **style)

    @property
    def _picture_height(self) -> float:
        return min(_LEFT * self.view.size[1] / self.view.size[0], _LEFT_TALLEST)

    def _left_height(self) -> float:
        failed = sum(result.error is not None for result in self.comparison.results)
        texts = 3.4 + self._more_to_read
        return self._picture_height + texts + self._matrix_side + (failed + 1) * _LINE

    @property
    def _matrix_side(self) -> float:
        """Height of the square table of all groups."""
        return 0.0 if self.scale is None else min(_LEFT - 0.4, 0.46 * len(self.groups))

    def _right_height(self) -> float:
        return _CAPTION + _CROP + 0.55 + sum(self.heights)

    def _row_height(self, group: Group) -> float:
        return max(_CAPTION + self.tile_height, _LINE * len(_name_lines(group)) + 0.1) + _ROW_GAP

    def _draw_left(self) -> None:
        top = _MARGIN + _TITLE
        axes = self.axes(_MARGIN, top, _LEFT, self._picture_height)
        self.view.show(axes)
        draw_boxes(axes, self.rois, self.here, self.shown, self.view.size)
        below = top + self._picture_height + 0.15
        self.text(_MARGIN, below, self._box_note(), color=_QUIET)
        below += 0.5
        first, rest = self._how_to_read.split("\n", 1)
        self.text(_MARGIN, below, first, size=11, weight="bold")
        self.text(_MARGIN, below + 0.24, rest, size=9.5, linespacing=1.4)
        below += 1.3 + self._more_to_read
        self._draw_colour_bar(below)
        below += 0.95
        if self.scale is not None:
            self._draw_matrix(below)
        self._list_failed(below + self._matrix_side + 0.75)

    def _box_note(self) -> str:
        note = f"{self.view.what}; boxes are numbered in the order of the input."
        hidden = len(self.rois) - len(self.here)
        return f"{note}\n{hidden} more are not drawn here." if hidden else note

    def _draw_colour_bar(self, top: float) -> None:
        reference = self.comparison.reference
        self.text(_MARGIN, top, f"|difference| to the reference, {reference}", weight="bold")
        if self.scale is None:
            self.text(_MARGIN, top + 0.24, "There is none.")
            return
        axes = self.axes(_MARGIN + 0.1, top + 0.24, _LEFT - 0.2, 0.16)
        greatest = max(apart.greatest for apart in self.comparison.pairs.values())
        beyond = "max" if greatest > self.scale.get_clim()[1] else "neither"
        bar = self.figure.colorbar(self.scale, cax=axes, orientation="horizontal", extend=beyond)
        bar.ax.tick_params(labelsize=8)
        bar.ax.xaxis.set_major_formatter(lambda value, _: short(value))
        bar.outline.set_linewidth(0.5)
        note = "white: equal"
        if self.view.channels > 1:
            note += f"; of each bin, the greatest over the {self.view.channels} channels"
        if any(np.isinf(apart.greatest) for apart in self.comparison.pairs.values()):
            note += "; black: only one is NaN or infinite"
        self.text(_MARGIN, top + 0.66, note, size=8, color=_QUIET)

    def _draw_matrix(self, top: float) -> None:
        """Draw the largest difference of each pair of groups, in the colours of the bar."""
        assert self.scale is not None
        title = "Greatest |difference| of each pair of groups, over all boxes"
        self.text(_MARGIN, top, title, weight="bold")
        side = self._matrix_side
        axes = self.axes(_MARGIN + 0.3, top + 0.5, side, side)
        greatest = np.array(
            [[self.comparison.between(i, j).greatest for j in self.order] for i in self.order]
        )
        self._show_distance(axes, greatest)
        letters = [group.letter for group in self.groups]
        axes.xaxis.tick_top()
        axes.set_xticks(range(len(letters)), letters, weight="bold", color=ACCENT)
        axes.set_yticks(range(len(letters)), letters, weight="bold", color=ACCENT)
        axes.tick_params(length=0)
        size = min(8.5, 19 * side / len(letters))
        dark = 0.3 * self.scale.get_clim()[1]
        for (row, column), value in np.ndenumerate(greatest):
            if row != column:
                style: dict[str, Any] = {"ha": "center", "va": "center", "size": size}
                colour = "white" if value > dark else "black"
                axes.text(column, row, short(value, 2), color=colour, **style)

    def _list_failed(self, top: float) -> None:
        failed = [result.name for result in self.comparison.results if result.error is not None]
        if failed:
            self.text(_MARGIN, top, "\n".join(["Did not run on this input:", *failed]))

    def _draw_right(self) -> None:
        left = _MARGIN + _LEFT + _GUTTER
        top = _MARGIN + _TITLE
        for number, index in enumerate(self.shown):
            x = left + _NAMES + number * (_COLUMN + _COLUMN_GAP)
            self._draw_head(x, top, index)
        top += _CAPTION + _CROP + 0.55
        for group, height in zip(self.groups, self.heights, strict=True):
            self._draw_row(left, top, group)
            top += height

    def _draw_head(self, x: float, top: float, index: int) -> None:
        where = f", plane {self.planes[index]}" if self.features.is_volume else ""
        head = f"box {index + 1}{where}"
        self.text(x, top - 0.04, head, size=11, weight="bold", color=CHOSEN)
        axes = self.axes(x, top + _CAPTION, _COLUMN, _CROP)
        self.views[index].show(axes)
        shape = self.comparison.groups[0].output.shape[-2:]
        enlarge(axes, self.rois[index, 1:], shape, _COLUMN / _CROP)
        below = top + _CAPTION + _CROP + 0.3
        for offset, word in ((0.0, "pooled"), (_TILE + _GAP, "difference")):
            self.text(x + offset + _TILE / 2, below, word, ha="center", va="bottom", color=_QUIET)

    def _draw_row(self, left: float, top: float, group: Group) -> None:
        home = group is self.groups[0]
        self.text(left, top + _CAPTION - 0.05, group.letter, size=17, weight="bold", color=ACCENT)
        names = "\n".join(_name_lines(group))
        self.text(left + 0.36, top + _CAPTION - 0.02, names, size=8.5, linespacing=1.3)
        reference = self.groups[0].output
        for number, index in enumerate(self.shown):
            x = left + _NAMES + number * (_COLUMN + _COLUMN_GAP)
            tile = self.axes(x, top + _CAPTION, _TILE, self.tile_height)
            pooled = slices.middle_bins(group.output[index], self.features)
            self.view.show_pooled(tile, pooled)
            x += _TILE + _GAP
            axes = self.axes(x, top + _CAPTION, _TILE, self.tile_height)
            apart = distance(group.output[index], reference[index]).max(axis=0)
            self._show_distance(axes, slices.middle_bins(apart, self.features))
            caption = "reference" if home else f"greatest {short(apart.max(), 2)}"
            self.text(
                x + _TILE / 2, top + _CAPTION - 0.04, caption, size=8, ha="center", va="bottom"
            )

    def _show_distance(self, axes: Axes, apart: NDArray[np.float64]) -> None:
        axes.imshow(difference_colours(apart, self.scale), interpolation="nearest")
        axes.set_anchor("N")
