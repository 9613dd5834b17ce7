"""What a bin's value is by any combination of rules.

An engine takes all of a system's decisions at once. Here the oracle's own steps
(`roipool.reference`) are put together by any `Rules`, with the variations that tell what somebody's
implementation does wrong. Positions are float32, as in the systems; the tests compare the values
with the engines.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roipool.reference import _crop_and_resize, _precise_roi_pool, _roi_align, _step_align
from roipool.reference._interpolation import Neighbours, _cut_bin, _round_half_away
from roipool.reference._loops import _average, _maximum
from roipool.reference._roi_align import AlignRules
from roipool.reference._roi_align_rotated import _Rotated
from roipool.reference._roi_pool import CAFFE, _pool_run
from roipool.tools.compare.problem import Options
from roipool.tools.compare.rules import Rules
from roipool.tools.conformance.mutants import half_to_even, side_with

__all__ = [
    "NotExplainedError",
    "Place",
    "box_in_cells",
    "pooled_value",
    "sample_counts",
]

FloatArray = NDArray[np.float32]
Real = np.float32
_MAX_COUNT = 4000  # samples of a bin along one axis
_MAX_TURNED = 40_000  # of a rotated box's bin


class NotExplainedError(Exception):
    """The value of a bin is not computed; the message says why."""


class _AxisBin(NamedTuple):
    """A bin along one axis.

    Attributes
    ----------
    positions : list of float
        Where its samples lie, in map cells whose centres are whole numbers.
    cells : list of list of (int, float)
        For each sample the cells that it reads, with weights; none outside the map.
    total : float
        What a mean divides by.
    """

    positions: list[float]
    cells: list[list[tuple[int, float]]]
    total: float


@functools.cache
def _align_rules(rules: Rules) -> AlignRules:
    """Return the oracle's rules for a box's ends, its border and neighbours."""
    return AlignRules(
        side=side_with(
            shift=rules.shift,
            extra=float(rules.extra == "cell"),
            pixels=float(rules.extra == "pixel"),
            least=rules.minimum,
            round_corner=_ROUNDINGS[rules.rounding],
        ),
        is_outside=_OUTSIDE[rules.border],
        neighbours=_NEIGHBOURS[rules.border if rules.weights == "linear" else rules.weights],
    )


_ROUNDINGS: dict[str, Callable[[Any], int] | None] = {
    "none": None,
    "half away": _round_half_away,
    "half even": half_to_even,
}
_OUTSIDE: dict[str, Callable[[Any, int], bool]] = {
    "hold": _roi_align._is_outside,
    "zero": _crop_and_resize._is_outside,
    "drop": lambda at, size: size == 0,
}
_NEIGHBOURS: dict[str, Callable[..., Neighbours]] = {
    "hold": _roi_align._neighbours,
    "zero": _crop_and_resize._floor_and_ceil,
    "drop": lambda at, size, real: _step_align._step_neighbours(at, False, real),
    "doubled": lambda at, size, real: _step_align._step_neighbours(at, True, real),
}
_TURNS = {
    "counter-clockwise": 1.0,
    "clockwise": -1.0,
    "degrees": math.pi / 180,
    "clockwise degrees": -math.pi / 180,
    "ignored": 0.0,
}


class _Side(NamedTuple):
    """A box along one axis in map cells, as the rules for its ends make it; NaN if not finite."""

    start: Any
    length: Any


def _side_of(rules: Rules, low: float, high: float, scale: float) -> _Side:
    """Apply the rules for a box's ends; `low` and `high` in pixels."""
    with np.errstate(all="ignore"):
        start, length, _ = _align_rules(rules).side(low, high, scale, False, Real)
    return _Side(start, length)


class _Bin(NamedTuple):
    """Which bin along an axis: of a side from `low` to `high` pixels, and a map of `size` cells."""

    low: float
    high: float
    number: int
    bins: int
    size: int
    options: Options


def _axis_bin(rules: Rules, one: _Bin) -> _AxisBin:
    """Return one bin along one axis."""
    side = _side_of(rules, one.low, one.high, one.options.spatial_scale)
    if not np.isfinite(side.start + side.length):
        # Samples whose number does not depend on the box are there, but outside the map.
        there = rules.samples == "grid" and one.options.sampling_ratio > 0
        return _AxisBin([], [[]] if there else [], 0.0)
    with np.errstate(all="ignore"):
        return _FINDERS[rules.samples](rules, side, one)


class Place(NamedTuple):
    """A bin of a box on one channel of a map.

    Attributes
    ----------
    image : (H, W) float32 ndarray
        The channel.
    box : (4,) or (5,) float32 ndarray
        x1, y1, x2, y2 in pixels; or centre x and y, width, height and angle.
    bin : (int, int)
        Row and column of the bin.
    options : Options
        Scale, bins and samples.
    """

    image: FloatArray
    box: FloatArray
    bin: tuple[int, int]
    options: Options

    @property
    def rotated(self) -> bool:
        """Whether the box has an angle."""
        return len(self.box) == 5

    def axes(self) -> list[_Bin]:
        """Return the bin down and along the map; of a box without an angle."""
        x1, y1, x2, y2 = (float(value) for value in self.box)
        return [
            _Bin(low, high, number, bins, size, self.options)
            for low, high, number, bins, size in zip(
                (y1, x1), (y2, x2), self.bin, self.options.output_size, self.image.shape,
                strict=True,
            )
        ]  # fmt: skip

    def turned(self, rules: Rules) -> _Rotated:
        """Return what the oracle makes of a box with an angle."""
        ratio = rules.ratio or self.options.sampling_ratio
        with np.errstate(all="ignore"):
            return _Rotated(
                tuple(self.box.tolist()), self.options.output_size, self.image.shape,
                self.options.spatial_scale, (ratio, ratio), rules.shift, rules.minimum,
                _TURNS[rules.angle], Real,
            )  # fmt: skip


def pooled_value(rules: Rules, place: Place) -> float:
    """Return the value of one bin of one channel by any combination of rules.

    Raises
    ------
    NotExplainedError
        If the bin has thousands of samples, or nothing but NaN for a maximum.
    """
    if place.rotated:
        return _turned_value(rules, place)
    down, along = (_axis_bin(rules, one) for one in place.axes())
    if rules.reduce == "max of corners":
        down, along = _corners(down), _corners(along)
    if not (down.cells and along.cells):
        return rules.empty
    if not (any(down.cells) and any(along.cells)):
        return 0.0
    with np.errstate(all="ignore"):
        values = _sample_values(place.image, down, along, rules.reduce != "mean")
        if rules.reduce == "mean":
            return float(values.sum() / (down.total * along.total))
    if not rules.empty and np.isnan(values).all():
        raise NotExplainedError("bins of which every sample is NaN")
    return float(np.fmax.reduce(values, axis=None, initial=rules.empty or -math.inf))


def _turned_value(rules: Rules, place: Place) -> float:
    box = place.turned(rules)
    count = box.down.grid * box.across.grid
    if count > _MAX_TURNED:
        raise NotExplainedError(f"{count:,} samples of a bin")
    image, boxes = place.image[None, None].astype(np.float64), [(0, tuple[float, ...]())]
    if rules.reduce == "mean":
        return float(_average(image, boxes, (1, 1), lambda *_: box.bin(*place.bin)).item())
    return float(_maximum(image, boxes, (1, 1), lambda *_: box.bin(*place.bin)).value.item())


def box_in_cells(rules: Rules, place: Place) -> list[float]:
    """Return x1, y1, x2, y2 in map cells as the rules make them; before a rotated box is turned."""
    if place.rotated:
        box = place.turned(rules)
        centre, half = np.array([box.x, box.y]), np.array([box.across.length, box.down.length]) / 2
        return [*(centre - half).tolist(), *(centre + half).tolist()]
    y, x = (_side_of(rules, one.low, one.high, one.options.spatial_scale) for one in place.axes())
    ends = [x.start, y.start, x.start + x.length, y.start + y.length]
    return [float(end) for end in ends]


def sample_counts(rules: Rules, place: Place) -> tuple[int, int]:
    """Return how many rows and columns of samples the bin has."""
    if place.rotated:
        box = place.turned(rules)
        return box.down.grid, box.across.grid
    down, along = (len(_axis_bin(rules, one).cells) for one in place.axes())
    return down, along


def _sample_values(
    image: FloatArray, down: _AxisBin, along: _AxisBin, reads_all: bool
) -> NDArray[np.float64]:
    """Return the value of each sample.

    A maximum's sample `reads_all` its cells; what has the weight 0 makes no mean NaN.
    """
    (ys, y_weights, y_read), (xs, x_weights, x_read) = _matrix(down), _matrix(along)
    window = image[np.ix_(ys, xs)].astype(np.float64)
    finite = np.isfinite(window)
    values: NDArray[np.float64] = y_weights @ np.where(finite, window, 0.0) @ x_weights.T
    for row, column in np.argwhere(~finite):
        weights = np.outer(y_weights[:, row], x_weights[:, column])
        read = np.outer(y_read[:, row], x_read[:, column]) if reads_all else weights != 0
        values += np.where(read, weights * window[row, column], 0.0)
    return values


def _corners(found: _AxisBin) -> _AxisBin:
    """Make a sample of each neighbour of a sample; one outside counts as 0."""
    cells = [[pair] for sample in found.cells for pair in sample or [(0, 0.0)]]
    return _AxisBin([], cells, float(len(cells)))


def _matrix(found: _AxisBin) -> tuple[list[int], NDArray[np.float64], NDArray[np.bool_]]:
    """Return the cells, the weights of each sample for them, and whether it reads them."""
    # Two neighbours that are one cell are read apart.
    places = sorted({(cell, i) for sample in found.cells for i, (cell, _) in enumerate(sample)})
    column = {place: number for number, place in enumerate(places)}
    weights = np.zeros((len(found.cells), len(places)))
    read = np.zeros(weights.shape, bool)
    for row, sample in enumerate(found.cells):
        for i, (cell, weight) in enumerate(sample):
            weights[row, column[cell, i]] = weight
            read[row, column[cell, i]] = True
    return [cell for cell, _ in places], weights, read


def _grid(rules: Rules, side: _Side, one: _Bin) -> _AxisBin:
    align, ratio = _align_rules(rules), rules.ratio or one.options.sampling_ratio
    count = align.samples_per_bin(side.length, one.bins, ratio, Real, Real)
    if count > _MAX_COUNT:
        raise NotExplainedError(f"{count:,} samples of a bin along one axis")
    options = one.options.spatial_scale, ratio, False, Real, Real
    line = _roi_align._line(*one[:5], *options, align)
    return _interpolated(rules, [line.position(i) for i in range(count)], one.size)


def _interpolated(rules: Rules, positions: list[Any], size: int) -> _AxisBin:
    align = _align_rules(rules)
    neighbours = [
        None if align.is_outside(at, size) else align.neighbours(at, size, Real) for at in positions
    ]
    cells = [
        [(cell, weight) for cell, weight in zip(one[:2], one[2:], strict=True) if 0 <= cell < size]
        if one
        else []
        for one in neighbours
    ]
    return _AxisBin([float(at) for at in positions], cells, len(positions))


def _cells(rules: Rules, side: _Side, one: _Bin) -> _AxisBin:
    if side.length <= 0:
        return _AxisBin([], [], 0.0)
    if rules.rounding == "none" or rules.shift:
        low, high = _cut_bin(*side, one.number, one.bins, one.size, Real)
        read = range(math.floor(low), math.ceil(high))
    else:
        first, last = int(side.start), int(side.start + side.length)
        read = _pool_run(first, last, one.number, one.bins, one.size, Real, _AS_IT_IS)
    return _AxisBin([float(cell) for cell in read], [[(cell, 1.0)] for cell in read], len(read))


def _steps(rules: Rules, side: _Side, one: _Bin) -> _AxisBin:
    ends = _cut_bin(*side, one.number, one.bins, one.size, Real)
    return _interpolated(rules, _step_align._steps(*ends, Real), one.size)


def _ends(rules: Rules, side: _Side, one: _Bin) -> _AxisBin:
    last_cell = Real(max(one.size - 1, 1))
    ends = side.start / last_cell, (side.start + side.length) / last_cell
    position = _crop_and_resize._crop_position(
        *ends, one.number, one.bins, one.size, Real, pinned=False, ratio_first=False
    )
    return _interpolated(rules, [position], one.size)


def _integral(rules: Rules, side: _Side, one: _Bin) -> _AxisBin:
    ends = side.start, side.start + side.length
    edges = _precise_roi_pool._edges(*ends, one.number, one.bins, 1.0, Real)
    if edges is None:
        return _AxisBin([], [], 0.0)
    means = _precise_roi_pool._means(edges, one.size)
    weights = [(cell, float(mean)) for cell, mean in means.items()]
    return _AxisBin([float(sum(edges) / 2)], [weights], 1.0)


_AS_IT_IS = CAFFE._replace(extra=0)  # a side whose rules are applied already
_FINDERS: dict[str, Callable[[Rules, _Side, _Bin], _AxisBin]] = {
    "grid": _grid,
    "cells": _cells,
    "steps": _steps,
    "ends": _ends,
    "integral": _integral,
}
