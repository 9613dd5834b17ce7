"""The samples of a bin of a box by any rules."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from roipool.reference._inputs import (
    Box,
    DType,
    Pair,
    Real,
    Scalar,
    Scale,
    Size,
    as_pair,
    as_real,
)
from roipool.reference._loops import Bin, Definition, Sample
from roipool.reference._precise_roi_pool import edges_of, means
from roipool.reference._rules import (
    BORDERS,
    DIVISORS,
    EDGES,
    READS,
    ROUNDINGS,
    SPREADS,
    Pixel,
    Rules,
    neighbours,
    product,
)
from roipool.reference._sides import cut_bin, ends_of, samples_per_bin, side_of

LARGEST_FLOAT64 = float(np.finfo(np.float64).max)
Cells: TypeAlias = list[tuple[int, Any]]  # with their weights


# The position of a sample, from the start of the side, the length and the number of the bin, the
# sample's number plus its centre, and the number of samples. Systems differ by roundings only.
POSITIONS: dict[str, Callable[[Any, Any, Any, Any, Any], Any]] = {
    "deformable": lambda start, length, p, i, count: start + i * (length / count),
    "caffe2": lambda start, length, p, i, count: start + p * length + i * length / count,
    "paddle": lambda start, length, p, i, count: start + length * (p + i / count),
    "openvino": lambda start, length, p, i, count: start + p * length + length / count * i,
    "megengine": lambda start, length, p, i, count: start + length * (p + 1 / count * i),
}


class Place(NamedTuple):
    """A bin's place on one axis of the map."""

    # The ends of the box's side.
    first: float
    last: float
    # The bin's number on the axis, and how many there are.
    p: int
    bins: int
    size: int  # cells of the map
    real: Real  # type of coordinates
    # Type of the bin's length where the samples of a grid are counted, and of the edges of bins of
    # rounded boxes.
    other_real: Real
    scale: float = 1.0  # cells per unit of the box
    ratio: int = 0  # the caller's number of samples of a grid; if not positive, it is adaptive
    order: str = "caffe2"  # formula of their positions: one of `POSITIONS`
    # A factor and an offset: a grid is moved by their product times the length of the side.
    moved: tuple[float, float] | None = None


class Line(NamedTuple):
    """A bin's samples on one axis."""

    grid: int  # number of samples
    # Number, position and weighted cells of each that may read the map; no cells if it is outside.
    near: list[tuple[int, float, Cells]]
    position: Callable[[int], Any]  # position of the sample with a number
    # Difference of a sample's number from row to row, if this is the axis of columns.
    stride: int


def _sampled(rules: Rules, place: Place, positions: list[Any]) -> Line:
    """The line of samples at some positions."""
    near = [
        (i, float(at), neighbours(rules, at, place.size, place.real))
        for i, at in enumerate(positions)
    ]
    return Line(len(near), near, positions.__getitem__, len(near))


def _near_map(position: Callable[[int], Scalar], grid: int, size: int, margin: float) -> range:
    """The samples whose `position` on an axis may lie in the map or so many cells off it.

    Positions all rise, or all fall.
    """
    lowest, highest = -margin, size - 1 + margin

    def first(condition: Callable[[float], bool]) -> int:
        return bisect_left(range(grid), True, key=lambda i: condition(float(position(i))))

    if grid > 0 and position(grid - 1) < position(0):
        return range(first(lambda at: at <= highest), first(lambda at: at < lowest))
    return range(first(lambda at: at >= lowest), first(lambda at: at > highest))


def _grid(rules: Rules, place: Place) -> Line:
    """A regular grid of samples in an unrounded bin."""
    real, size = place.real, place.size
    start, length, _ = side_of(rules, place.first, place.last, place.scale, real)
    count = samples_per_bin(rules, length, place.bins, place.ratio, real, place.other_real)
    bin_size, of = length / real(place.bins), POSITIONS[place.order]
    if place.moved is not None:
        factor, offset = map(real, place.moved)
        if place.order == "deformable":  # the bin's own start
            start = real(place.p) * bin_size + start + offset * factor * length
        else:
            start = start + factor * length * offset

    def position(i: int) -> Scalar:
        into_bin = real(i) + real(rules.centre)
        return cast(Scalar, of(start, bin_size, real(place.p), into_bin, real(count)))

    border = BORDERS[rules.border]
    margin = min(max(-border.low, border.high, 1.0), 64.0)
    near = []
    for i in _near_map(position, count, size, margin):
        at = position(i)
        near.append((i, float(at), neighbours(rules, at, size, real)))
    return Line(count, near, position, count)


def _whole_cells(cells: range, size: int) -> Line:
    """The line whose samples are cells, numbered by their index in the map."""
    near = [(cell, float(cell), [(cell, 1.0)]) for cell in cells]
    return Line(len(cells), near, float, size)


def _cells(rules: Rules, place: Place) -> Line:
    """The cells that a bin touches: floor of its start to ceil of its end, cut at the map."""
    real, size = place.real, place.size
    if rules.rounding == "none" or rules.rounding_unit == "pixel" or rules.shift:
        start, length, _ = side_of(rules, place.first, place.last, place.scale, real)
        if length <= 0:
            return _whole_cells(range(0), size)
        low, high = cut_bin(start, length, place.p, place.bins, size, real)
        first, last = EDGES[rules.edges]
        return _whole_cells(range(first(low), last(high)), size)
    return _whole_cells(_cells_of_rounded(rules, place), size)


def _cells_of_rounded(rules: Rules, place: Place) -> range:
    """The cells of a bin of a box whose ends are whole cells, integers of any size.

    There are none where the length of the side is too large for the type of edges.
    """
    scaled = ends_of(rules, place.first, place.last, place.scale, place.real)
    real, size = place.other_real, place.size
    if scaled is None:
        return range(0)
    rounded = ROUNDINGS[rules.rounding]
    assert rounded is not None
    first, last = map(rounded, scaled)
    length = last - first + (rules.extra == "cell")
    assert not isinstance(rules.minimum, tuple)
    if rules.minimum is not None:
        length = max(length, int(rules.minimum))
    if rules.edges == "exact floor and ceil":
        low = first + place.p * length // place.bins
        high = first - -(place.p + 1) * length // place.bins
    else:
        side = real(float(length) if length <= LARGEST_FLOAT64 else math.inf)
        bin_size = side / real(place.bins)
        if rules.edges == "short reciprocal":
            bin_size = side * np.nextafter(real(1) / real(place.bins), real(0))
        if not np.isfinite(bin_size):
            return range(0)
        start, end = real(place.p) * bin_size, real(place.p + 1) * bin_size
        first_cell, last_cell = EDGES[rules.edges]
        low = first_cell(start) + first
        high = last_cell(end) + first if np.isfinite(end) else size
    size -= rules.cut
    return range(min(max(low, 0), size), min(max(high, 0), size))


def _steps(rules: Rules, place: Place) -> Line:
    """Samples one cell apart from the start of the bin, which is cut at the map."""
    real = place.real
    start, length, _ = side_of(rules, place.first, place.last, place.scale, real)
    at, end = cut_bin(start, length, place.p, place.bins, place.size, real)
    positions = []
    while at < end:
        positions.append(at)
        at = at + real(1)
    return _sampled(rules, place, positions)


def spread_position(rules: Rules, place: Place, *, ratio_first: bool = False) -> Scalar:
    """Where bin `p` of a side has its one sample; the side's ends are parts of the map.

    Bins are evenly spread from the box's first edge to its last; a single one is midway. The last
    is exactly on the box's last edge with "exact corners", else where rounding puts it.
    `ratio_first` multiplies in the order of TensorFlow's box gradient, which is not that of its
    other kernels.
    """
    p, bins, size, real = place.p, place.bins, place.size, place.real
    first, last = real(place.first), real(place.last)
    spread = SPREADS[rules.spread]
    if spread is not None:
        share = (real(p) + real(spread.start)) / real(max(bins - spread.fewer_steps, 1))
        return (first + share * (last - first)) * real(size - spread.less) - real(spread.shift)
    if bins == 1:
        return real(0.5) * (first + last) * real(size - 1)
    if rules.spread == "exact corners" and p == bins - 1:
        return last * real(size - 1)
    length = last - first
    ratio = real(size - 1) / real(bins - 1)
    spacing = length * ratio if ratio_first else length * real(size - 1) / real(bins - 1)
    return first * real(size - 1) + real(p) * spacing


def _ends(rules: Rules, place: Place) -> Line:
    """One sample, for a box in pixels."""
    start, length, _ = side_of(rules, place.first, place.last, place.scale, place.real)
    last_cell = place.real(max(place.size - 1, 1))
    parts = place._replace(first=float(start / last_cell), last=float((start + length) / last_cell))
    with np.errstate(invalid="ignore"):
        return _sampled(rules, place, [spread_position(rules, parts)])


def _integral(rules: Rules, place: Place) -> Line:
    """One sample, of all the cells that contribute to the integral over the bin."""
    start, length, _ = side_of(rules, place.first, place.last, place.scale, place.real)
    edges = edges_of(start, start + length, place.p, place.bins, 1.0, place.real)
    if edges is None:
        return Line(0, [], float, 0)
    return Line(1, [(0, float(edges[0]), list(means(edges, place.size).items()))], float, 1)


LINES: dict[str, Callable[[Rules, Place], Line]] = {
    "grid": _grid,
    "cells": _cells,
    "steps": _steps,
    "ends": _ends,
    "integral": _integral,
}


@lru_cache(maxsize=4096)  # a row of bins has one line of rows, whatever is then done with it
def line_of(rules: Rules, place: Place) -> Line:
    """The samples of a bin on one axis."""
    return LINES[rules.samples](rules, place)


# ---- Both axes


def _with_first_missing(numbers: list[int], count: int) -> list[int]:
    """Rising `numbers`, with the smallest number below `count` that they lack, if they lack any."""
    missing = 0
    while missing < len(numbers) and numbers[missing] == missing:
        missing += 1
    return numbers[:missing] + [missing] * (missing < count) + numbers[missing:]


def crossed(rules: Rules, rows: Line, columns: Line, real: Real) -> Bin:
    """The bin whose samples lie where the lines of its rows and columns cross.

    A sample is outside the map if it is on any axis. Of the samples outside only the first is sure
    to be listed: the others add 0 to a sum and cannot win a maximum. So a huge grid costs no more
    than the map.
    """
    steps = rules.samples == "steps"  # reads the lower row first, and rounds products of weights

    def weigh(down: Any, across: Any) -> float:
        if rules.samples == "integral":
            return float(down * across)
        if not steps:
            return product(down, across)
        with np.errstate(under="ignore"):
            return float(real(down) * real(across))

    near = {}
    for iy, y, above_below in rows.near:
        for ix, x, left_right in columns.near:
            number = iy * columns.stride + ix
            pixels = [
                (row, column, weigh(down, across))
                for row, down in (above_below[::-1] if steps else above_below)
                for column, across in left_right
            ]
            near[number] = Sample(number, y, x, pixels)
    if rules.samples != "grid":
        return Bin(list(near.values()), (rows.grid, columns.grid))
    samples = []
    for number in _with_first_missing(list(near), rows.grid * columns.grid):
        if number not in near:
            y_outside = rows.position(number // columns.grid)
            x_outside = columns.position(number % columns.grid)
            near[number] = Sample(number, float(y_outside), float(x_outside), [])
        samples.append(near[number])
    return Bin(samples, (rows.grid, columns.grid))


def by_rules(rules: Rules, found: Bin) -> Bin:
    """A bin with what the rules say of reading, dividing and equal samples."""
    samples, reading = found.samples, READS[rules.reads]
    if rules.divisor == "all samples, even 0" and not math.prod(found.grid):
        return Bin([Sample(0, math.nan, math.nan, [(0, 0, math.nan)])], (1, 1))
    if rules.reads != "weighted":
        corner: list[Pixel] = [(0, 0, 0.0)] if reading.first_cell else []
        samples = [
            one._replace(
                pixels=one.pixels or corner, reads_all=reading.neighbours or not one.pixels
            )
            for one in samples
        ]
    if rules.ties == "last":
        samples = samples[::-1]
    grid = found.grid
    if rules.divisor != "all samples":
        inside = sum(bool(one.pixels) for one in found.samples)
        grid = (DIVISORS[rules.divisor](math.prod(grid), inside), 1)
    if rules.reduce == "max of corners":
        samples = [
            one._replace(pixels=part)
            for one in samples
            for part in [[pixel] for pixel in one.pixels] or [[]]
        ]
    return Bin(samples, grid)


def places_of(
    box: Box,
    number: Sequence[int],
    bins: Sequence[int],
    size: Sequence[int],
    *,
    real: Real,
    other_real: Real | None = None,
    scale: Scale = 1.0,
    ratio: Sequence[int] = (0, 0),
    order: str = "caffe2",
) -> list[Place]:
    """The places of a bin of an upright box on the axes of rows and columns, or of a volume."""
    axes = len(box) // 2
    ends = zip(box[axes - 1 :: -1], box[: axes - 1 : -1], strict=True)  # of x, y, z in reverse
    types = real, other_real or real
    scales = scale if isinstance(scale, tuple) else (scale,) * axes
    return [
        Place(*each, number[axis], bins[axis], size[axis], *types, scales[axis], ratio[axis], order)
        for axis, each in enumerate(ends)
    ]


def define(
    rules: Rules,
    spatial_scale: Scale = 1.0,
    sampling_ratio: Size = 0,
    coordinate_dtype: DType = np.float64,
    other_dtype: DType | None = None,
    order: str = "caffe2",
) -> Callable[[Pair, Pair], Definition]:
    """From the numbers of bins and the size of a map to the bins of upright boxes."""
    ratio, real = as_pair(sampling_ratio), as_real(coordinate_dtype)
    other_real = real if other_dtype is None else as_real(other_dtype)

    def of_maps(bins: Pair, size: Pair) -> Definition:
        def definition(box: Box, ph: int, pw: int) -> Bin:
            places = places_of(
                box,
                (ph, pw),
                bins,
                size,
                scale=spatial_scale,
                ratio=ratio,
                real=real,
                other_real=other_real,
                order=order,
            )
            rows, columns = (line_of(rules, place) for place in places)
            return by_rules(rules, crossed(rules, rows, columns, real))

        return definition

    return of_maps
