"""Crop and resize: one sample per cell of the crop, or the mean under a filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np

from roipool.reference._bins import Line, Place, by_rules, crossed, places_of, spread_position
from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Floats,
    Pair,
    Real,
    Scalar,
    Size,
    as_pair,
    as_real,
    to_nchw,
)
from roipool.reference._loops import Averages, Bin, Definition, Motion, Sample, Slopes, slope_of
from roipool.reference._rules import (
    CROP_AND_RESIZE,
    ROUNDINGS,
    Pixel,
    Rules,
    floor_and_ceil,
    neighbours,
    slopes,
)


def filter_width(place: Place) -> float:
    """How far neighbouring cells of the crop are apart: the box's side where there is only one."""
    real = place.real
    with np.errstate(over="ignore", invalid="ignore"):
        side = (real(place.last) - real(place.first)) * real(place.size - 1)
        return abs(float(side / real(max(place.bins - 1, 1))))


WIDEST = 2.0**90  # a filter; cells farther away read the edge of the map

Derivatives = tuple[Fraction, Fraction, Fraction]  # a weight, its slopes for position and width


@lru_cache(maxsize=4096)
def _mean(at: float, width: float, size: int) -> dict[int, Derivatives]:
    """The weights of all cells under a triangle, which sum to 1."""
    away = {cell: Fraction(cell) - Fraction(at) for cell in range(size)}
    heights = {
        cell: 1 - abs(distance) / Fraction(width)
        for cell, distance in away.items()
        if abs(distance) < width
    }
    rises = {cell: ((away[cell] > 0) - (away[cell] < 0)) / Fraction(width) for cell in heights}
    growths = {cell: abs(away[cell]) / Fraction(width) ** 2 for cell in heights}
    total, rise, growth = (sum(each.values()) for each in (heights, rises, growths))
    return {
        cell: (
            height / total,
            (rises[cell] * total - height * rise) / total**2,
            (growths[cell] * total - height * growth) / total**2,
        )
        for cell, height in heights.items()
    }


def held(border: str, at: Scalar, place: Place) -> Scalar:
    """The position where a sample reads the map: one outside it is held with border "edge"."""
    if border == "constant" or not np.isfinite(at):
        return at
    return min(max(at, place.real(0)), place.real(place.size - 1))


def filtered(place: Place, at: float, border: str) -> dict[int, Derivatives] | None:
    """The weights under the filter of antialiased crops, with their slopes.

    None on an axis that is not made smaller, and outside the map where no cell is under the filter:
    there one sample is interpolated.
    """
    width = filter_width(place)
    inside = 0 <= at <= place.size - 1 if border == "constant" else np.isfinite(at)
    if not np.isfinite(width) or not inside:
        return {}
    if width <= 1:
        return None
    return _mean(at, min(width, WIDEST), place.size) or None


@dataclass(frozen=True)
class Crop:
    """As :func:`roipool.crop_and_resize`, slowly: every sample, or mean, by itself.

    Source of the filter: ``precompute_coeffs`` in Pillow 12's Resample.c.
    If `pinned`, the last cell of a side lies exactly on the box's last edge, else where rounding
    puts it, as in TensorFlow: perhaps just outside the map.
    """

    boxes: Array
    box_indices: Array
    _: KW_ONLY
    method: str = "bilinear"
    antialias: bool = False
    border: str = "constant"
    layout: str = "NCHW"
    pinned: bool = True
    coordinate_dtype: DType = np.float64
    rules: Rules = CROP_AND_RESIZE

    def __post_init__(self) -> None:
        if self.method not in ("bilinear", "nearest"):
            raise ValueError(f"method must be 'bilinear' or 'nearest', got {self.method!r}")
        if self.antialias and self.method != "bilinear":
            raise ValueError(f"antialias must be False with method={self.method!r}, got True")
        if self.border not in ("constant", "edge"):
            raise ValueError(f"border must be 'constant' or 'edge', got {self.border!r}")

    def crops(self, ratio_first: bool = False) -> Averages:
        """Return averages of the cells of crops."""
        real, rounded, rules = (
            as_real(self.coordinate_dtype),
            ROUNDINGS[self.rules.nearest],
            self.rules,
        )
        if self.pinned and rules.spread == "corners":
            rules = replace(rules, spread="exact corners")

        def line(place: Place) -> Line:
            position = spread_position(rules, place, ratio_first=ratio_first)
            at = held(self.border, position, place)
            cells = neighbours(rules, at, place.size, real)
            means = filtered(place, float(position), self.border) if self.antialias else None
            if means is not None:
                cells = [(cell, float(weight)) for cell, (weight, _, _) in means.items()]
            if cells and self.method == "nearest":
                assert rounded is not None
                cells = [(min(max(rounded(at), 0), place.size - 1), 1.0)]
            return Line(1, [(0, float(at), cells)], float, 1)

        def of_maps(bins: Pair, size: Pair) -> Definition:
            def definition(box: Box, ph: int, pw: int) -> Bin:
                y1, x1, y2, x2 = box
                places = places_of((x1, y1, x2, y2), (ph, pw), bins, size, real=real)
                rows, columns = (line(place) for place in places)
                return by_rules(rules, crossed(rules, rows, columns, real))

            return definition

        return Averages(of_maps, self.boxes, self.box_indices, self.layout)

    def forward(
        self, features: Array, crop_size: Size, *, extrapolation_value: float = 0.0
    ) -> Floats:
        """Return crops."""
        return self.crops().forward(features, crop_size, extrapolation_value)

    def backward(self, grad_output: Array, input_shape: Sequence[int]) -> Floats:
        """Return the gradient of maps: the transpose, sample by sample."""
        return self.crops().backward(grad_output, input_shape)

    def backward_boxes(self, grad_output: Array, features: Array) -> Floats:
        """Return the gradient of boxes: the slope at every sample.

        Without `pinned` it multiplies in the order of TensorFlow's CropAndResizeGradBoxes, which is
        not that of its forward.
        """
        real = as_real(self.coordinate_dtype)
        if self.antialias:
            ends = partial(_by_ends, self.rules, self.border)
            return _filtered_backward_boxes(self.crops(), grad_output, features, ends, real)

        def slopes_in(size: Pair) -> Slopes:
            def slopes_at(sample: Sample) -> tuple[list[Pixel], list[Pixel]]:
                """On a row of cells' centres there is none for y, on a column none for x."""
                if not sample.pixels:
                    return [], []
                return slopes(
                    floor_and_ceil(real(sample.y), size[0], real),
                    floor_and_ceil(real(sample.x), size[1], real),
                )

            return slopes_at

        crops = self.crops(ratio_first=not self.pinned)
        return crops.backward_boxes(grad_output, features, slopes_in, _motion)


def _motion(bins: Pair, size: Pair) -> Motion:
    """Return how samples move with the ends of their box: y1, x1, y2, x2."""

    def moves(
        box: Box, ph: int, pw: int, found: Bin, sample: Sample
    ) -> Iterator[tuple[float, float]]:
        y_first, y_last = _share(ph, bins[0], size[0])
        x_first, x_last = _share(pw, bins[1], size[1])
        yield from ((y_first, 0.0), (0.0, x_first), (y_last, 0.0), (0.0, x_last))

    return moves


def _share(p: int, bins: int, size: int) -> tuple[float, float]:
    """Cells that the sample of bin `p` moves as its side's start, and end, moves by one."""
    fraction = 0.5 if bins == 1 else p / (bins - 1)
    return (size - 1) * (1 - fraction), (size - 1) * fraction


Weights = dict[int, Fraction]
Ends = Callable[[Place], tuple[Weights, tuple[Weights, Weights]]]


def _filtered_backward_boxes(
    crops: Averages, grad_output: Array, features: Array, ends: Ends, real: Real
) -> Floats:
    """The gradient by both ends of every side: a mean changes as its filter moves and widens."""
    planes, upstream = to_nchw(features, crops.layout), to_nchw(grad_output, crops.layout)
    bins, size = as_pair(upstream.shape[2:]), as_pair(planes.shape[2:])
    boxes = crops.boxes(len(planes))
    grad = np.zeros((len(boxes), 4))
    for k, n, ph, pw, found in crops.every_bin(boxes, bins, size):
        if not any(sample.pixels for sample in found.samples):
            continue
        y1, x1, y2, x2 = boxes[k][1]
        places = places_of((x1, y1, x2, y2), (ph, pw), bins, size, real=real)
        (rows, by_rows), (columns, by_columns) = map(ends, places)
        for end in range(2):
            down = _products(by_rows[end], columns)
            across = _products(rows, by_columns[end])
            step = upstream[k, :, ph, pw]
            grad[k, 2 * end] += slope_of(step, planes[n], down)
            grad[k, 2 * end + 1] += slope_of(step, planes[n], across)
    return grad


def _by_ends(rules: Rules, border: str, place: Place) -> tuple[Weights, tuple[Weights, Weights]]:
    """The weights of a cell of the crop on one axis, and their derivatives by the side's ends."""
    at = spread_position(replace(rules, spread="exact corners"), place)
    weighted = filtered(place, float(at), border)
    if weighted is None:
        low, high, before, after = floor_and_ceil(held(border, at, place), place.size, place.real)
        rise = Fraction(1 if low < high else 0)
        # Both are one cell where the position is one: no slope.
        weighted = {high: (Fraction(after), rise, Fraction(0))}
        weighted[low] = (Fraction(before), -rise, Fraction(0))
    first, last = _share(place.p, place.bins, place.size)
    wider = Fraction(place.size - 1) / max(place.bins - 1, 1)
    wider = wider if place.last >= place.first else -wider
    return {cell: weight for cell, (weight, _, _) in weighted.items()}, (
        {cell: by * Fraction(first) - width * wider for cell, (_, by, width) in weighted.items()},
        {cell: by * Fraction(last) + width * wider for cell, (_, by, width) in weighted.items()},
    )


def _products(rows: Weights, columns: Weights) -> list[Pixel]:
    return [
        (y, x, float(down * across)) for y, down in rows.items() for x, across in columns.items()
    ]
