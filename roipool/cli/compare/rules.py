"""The rules of each system, apart from one another, so that one of them can be changed.

An engine takes all of a system's decisions at once. To say *why* two systems differ, their rules
must be exchanged one at a time: what is the value if only the rounding of the box is the other's?
This model evaluates any combination of rules, for one bin at a time and in float64, with positions
in float32 as the systems compute them. It is for explanations and drawings only; the tests compare
it with the engines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roipool.cli.compare.choosing import system_of
from roipool.cli.compare.problem import Options

__all__ = [
    "RULES",
    "AxisBin",
    "Rules",
    "TooManySamplesError",
    "axis_bin",
    "pooled_value",
    "rules_of",
    "side_of",
]

FloatArray = NDArray[np.float32]
Real = np.float32
_MAX_COUNT = 4000


@dataclass(frozen=True)
class Rules:
    """The rules of a system.

    Attributes
    ----------
    rounding : {"none", "half away", "half even"}
        Of a box's ends, in map cells.
    shift : float
        What is subtracted from them: 0.5 where cell 0 covers -0.5 to 0.5.
    extra : {"none", "cell", "pixel"}
        What is added to a box's length: a map cell, or a pixel of the image.
    minimum : bool
        Whether a box is at least one cell long.
    samples : {"grid", "cells", "steps", "ends", "integral"}
        What a bin reads: a grid of interpolated samples; every cell that it touches; samples one
        cell apart from its start; one sample per bin, the first and last at the box's ends; or the
        integral of the interpolated map.
    ratio : int or None
        Samples of a grid per bin and axis, where it is not what the user asks for.
    border : {"hold", "zero", "drop"}
        Samples outside the map: held at it for one cell, and 0 beyond; 0; or only those neighbours
        count that are inside.
    weights : {"linear", "doubled"}
        Of a sample's neighbours; doubled, one on a whole coordinate counts its cell twice.
    reduce : {"mean", "max", "max of corners"}
        Of a bin's samples; the last takes the largest weighted neighbour of any.
    empty : float
        The value of a bin that has no samples.
    """

    rounding: str = "none"
    shift: float = 0.0
    extra: str = "none"
    minimum: bool = False
    samples: str = "grid"
    ratio: int | None = None
    border: str = "hold"
    weights: str = "linear"
    reduce: str = "mean"
    empty: float = 0.0

    def differing(self, other: Rules) -> list[str]:
        """Return the names of the rules that are not the same."""
        names = [field.name for field in fields(self)]
        return [name for name in names if getattr(self, name) != getattr(other, name)]


class TooManySamplesError(Exception):
    """A bin has more samples than this model looks at."""


class AxisBin(NamedTuple):
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


_POOL = Rules("half away", 0.0, "cell", True, "cells", reduce="max")
_AVERAGE = Rules("half away", 0.0, "none", True, "cells")
_ALIGN = Rules(minimum=True)
_ALIGNED = Rules(shift=0.5)
_STEPS = Rules(extra="cell", samples="steps", border="drop", reduce="max")

RULES: dict[str, Rules] = {
    "roipool.roi_pool": _POOL,
    "roipool.roi_average_pool": _AVERAGE,
    "roipool.precise_roi_pool": Rules(samples="integral", border="zero"),
    "roipool.roi_align": _ALIGNED,
    "roipool.roi_align[max]": Rules(shift=0.5, reduce="max"),
    "roipool.roi_align_rotated": _ALIGNED,
    "caffe.roi_pooling": _POOL,
    "caffe.roi_align": Rules(
        extra="cell", samples="steps", border="drop", weights="doubled", reduce="max"
    ),
    "chainer.roi_average_pooling_2d": Rules("half even", 0.0, "none", True, "cells"),
    "mxnet.ROIPooling": _POOL,
    "mxnet.ROIAlign": _STEPS,
    "mxnet.contrib_ROIAlign": _ALIGN,
    "mmcv.roi_align": _ALIGNED,
    "mmcv.roi_align[max]": Rules(shift=0.5, reduce="max", empty=-10000.0),
    "mmcv.roi_pool": Rules(extra="pixel", samples="cells", reduce="max"),
    "maskrcnn_benchmark.roi_align": _ALIGN,
    "tensorflow.crop_and_resize": Rules(samples="ends", border="zero"),
    "roialign_pytorch.RoIAlign": Rules(shift=0.5, ratio=1, border="zero"),
    "torchvision.roi_pool": _POOL,
    "torchvision.roi_align": _ALIGN,
    "torchvision.roi_align[aligned]": _ALIGNED,
    "detectron2.ROIAlign": _ALIGNED,
    "onnx.RoiAlign[opset 10]": _ALIGN,
    "onnx.RoiAlign[opset 16]": _ALIGNED,
    "onnx.RoiAlign[max]": Rules(shift=0.5, reduce="max of corners"),
    "onnx.MaxRoiPool": _POOL,
    "openvino.ROIPooling": _POOL,
    "openvino.ROIAlign[asymmetric]": _ALIGN,
    "openvino.ROIAlign[half_pixel_for_nn]": _ALIGNED,
    "paddle.roi_pool": _POOL,
    "paddle.roi_align": _ALIGNED,
    "paddle.roi_align[not aligned]": _ALIGN,
}


def rules_of(name: str) -> Rules | None:
    """Return the rules of an implementation, by its name; None for a user's own."""
    return RULES.get(system_of(name))


class Side(NamedTuple):
    """A box along one axis, in map cells: before and after the rules for its ends."""

    low: float
    high: float
    start: Any
    length: Any


def side_of(rules: Rules, low: float, high: float, scale: float) -> Side:
    """Apply the rules for a box's ends; `low` and `high` in pixels."""
    first, last = Real(low) * Real(scale), Real(high) * Real(scale)
    start = first
    end = (Real(high) + Real(1)) * Real(scale) if rules.extra == "pixel" else last
    if rules.rounding != "none":
        start, end = _rounded(start, rules.rounding), _rounded(end, rules.rounding)
    start, end = start - Real(rules.shift), end - Real(rules.shift)
    length = end - start
    if rules.extra == "cell":
        length += Real(1)
    if rules.minimum:
        length = max(length, Real(1))
    return Side(float(first), float(last), start, length)


def axis_bin(
    rules: Rules, low: float, high: float, number: int, bins: int, size: int, options: Options
) -> AxisBin:
    """Return one bin along one axis.

    Parameters
    ----------
    rules : Rules
        Any combination.
    low, high : float
        The box's ends, in image pixels.
    number, bins : int
        Which bin, of how many.
    size : int
        Cells of the map.
    options : Options
        The scale, and the number of samples that the user asks for.

    Raises
    ------
    TooManySamplesError
        If it has thousands of samples.
    """
    with np.errstate(all="ignore"):
        side = side_of(rules, low, high, options.spatial_scale)
        if not (np.isfinite(side.start) and np.isfinite(side.length)):
            # Samples whose number does not depend on the box are there, but outside the map.
            there = rules.samples == "grid" and options.sampling_ratio > 0
            return AxisBin([], [[]] if there else [], 0.0)
        return _FINDERS[rules.samples](rules, side, number, bins, size, options)


def pooled_value(
    rules: Rules,
    image: FloatArray,
    box: FloatArray,
    bin_place: tuple[int, int],
    options: Options,
) -> float:
    """Return the value of one bin of one channel by any combination of rules.

    Parameters
    ----------
    rules : Rules
        The combination.
    image : (H, W) float32 ndarray
        One channel.
    box : sequence of float
        x1, y1, x2, y2 in pixels.
    bin_place : (int, int)
        Row and column of the bin.
    options : Options
        Scale, bins and samples.
    """
    x1, y1, x2, y2 = (float(value) for value in box)
    rows, columns = options.output_size
    down = axis_bin(rules, y1, y2, bin_place[0], rows, image.shape[0], options)
    along = axis_bin(rules, x1, x2, bin_place[1], columns, image.shape[1], options)
    if rules.reduce == "max of corners":
        down, along = _corners(down), _corners(along)
    if not (down.cells and along.cells):
        return rules.empty
    if not (any(down.cells) and any(along.cells)):
        return 0.0
    ys, y_weights = _matrix(down)
    xs, x_weights = _matrix(along)
    window = image[np.ix_(ys, xs)].astype(np.float64)
    with np.errstate(all="ignore"):
        values = _sample_values(y_weights, window, x_weights)
        if rules.reduce == "mean":
            return float(values.sum() / (down.total * along.total))
    return float(np.fmax.reduce(values, axis=None))  # a NaN is no maximum


def _sample_values(
    down: NDArray[np.float64], window: NDArray[np.float64], along: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the value of each sample; what it does not read does not make it NaN."""
    finite = np.isfinite(window)
    values: NDArray[np.float64] = down @ np.where(finite, window, 0.0) @ along.T
    for row, column in np.argwhere(~finite):
        weights = np.outer(down[:, row], along[:, column])
        values += np.where(weights == 0, 0.0, weights * window[row, column])
    return values


def _corners(found: AxisBin) -> AxisBin:
    """Make a sample of each neighbour of a sample; one outside counts as 0."""
    cells = [[pair] for sample in found.cells for pair in sample or [(0, 0.0)]]
    return AxisBin([], cells, float(len(cells)))


def _matrix(found: AxisBin) -> tuple[list[int], NDArray[np.float64]]:
    """Return the cells that are read, and the weights of each sample for them."""
    cells = sorted({cell for sample in found.cells for cell, weight in sample if weight})
    column = {cell: index for index, cell in enumerate(cells)}
    weights = np.zeros((len(found.cells), len(cells)))
    for row, sample in enumerate(found.cells):
        for cell, weight in sample:
            if weight:
                weights[row, column[cell]] += weight
    return cells, weights


def _rounded(value: Any, how: str) -> Any:
    if how == "half even":
        return np.rint(value)
    return np.copysign(np.floor(np.abs(value) + Real(0.5)), value)


def _grid(rules: Rules, side: Side, number: int, bins: int, size: int, options: Options) -> AxisBin:
    bin_length = side.length / Real(bins)
    count = rules.ratio or options.sampling_ratio or max(math.ceil(bin_length), 0)
    if count > _MAX_COUNT:
        raise TooManySamplesError(f"{count:,} samples of a bin along one axis")
    numbers = np.arange(count, dtype=Real)
    begin = side.start + Real(number) * bin_length
    positions = begin + (numbers + Real(0.5)) * bin_length / Real(count)
    return _interpolated(rules, list(positions), size)


def _cells(
    rules: Rules, side: Side, number: int, bins: int, size: int, options: Options
) -> AxisBin:
    if side.length <= 0:
        return AxisBin([], [], 0.0)
    bin_length = side.length / Real(bins)
    low, high = Real(number) * bin_length, Real(number + 1) * bin_length
    if side.start == np.floor(side.start):
        first = side.start + np.floor(low)
        last = side.start + np.ceil(high)
    else:
        first, last = np.floor(low + side.start), np.ceil(high + side.start)
    read = range(int(min(max(first, 0), size)), int(min(max(last, 0), size)))
    return AxisBin([float(cell) for cell in read], [[(cell, 1.0)] for cell in read], len(read))


def _steps(
    rules: Rules, side: Side, number: int, bins: int, size: int, options: Options
) -> AxisBin:
    bin_length = side.length / Real(bins)
    first, last = (
        min(max(Real(edge) * bin_length + side.start, Real(0)), Real(size))
        for edge in (number, number + 1)
    )
    positions = []
    while first < last:
        positions.append(first)
        first = first + Real(1)
    return _interpolated(rules, positions, size)


def _ends(rules: Rules, side: Side, number: int, bins: int, size: int, options: Options) -> AxisBin:
    if bins == 1:
        return _interpolated(rules, [side.start + side.length / Real(2)], size)
    step = side.length / Real(bins - 1)
    return _interpolated(rules, [side.start + Real(number) * step], size)


def _integral(
    rules: Rules, side: Side, number: int, bins: int, size: int, options: Options
) -> AxisBin:
    bin_length = float(side.length) / bins
    if not bin_length > 0:
        return AxisBin([], [], 0.0)
    low = float(side.start) + number * bin_length
    high = low + bin_length
    first, last = max(math.floor(low), 0), min(math.ceil(high), size - 1)
    weights = [
        (cell, (_hat_integral(high - cell) - _hat_integral(low - cell)) / bin_length)
        for cell in range(first, last + 1)
    ]
    return AxisBin([(low + high) / 2], [weights], 1.0)


_FINDERS = {
    "grid": _grid,
    "cells": _cells,
    "steps": _steps,
    "ends": _ends,
    "integral": _integral,
}


def _hat_integral(x: float) -> float:
    """Return the integral of max(0, 1 - |t|) up to x."""
    x = min(max(x, -1.0), 1.0)
    return 0.5 + x - math.copysign(x * x / 2, x)


def _interpolated(rules: Rules, positions: list[Any], size: int) -> AxisBin:
    cells = [_neighbours(rules, position, size) for position in positions]
    return AxisBin([float(position) for position in positions], cells, float(len(positions)))


def _neighbours(rules: Rules, position: Any, size: int) -> list[tuple[int, float]]:
    """Return the cells around a position with their weights."""
    if size == 0:
        return []
    if rules.border == "hold":
        if not -1 <= position <= size:
            return []
        position = min(max(position, Real(0)), Real(size - 1))
    elif rules.border == "zero" and not 0 <= position <= size - 1:
        return []
    low, high = math.floor(position), math.ceil(position)
    fraction = float(position - Real(low))
    pairs = [(low, 1.0 - fraction), (high, fraction)]
    if rules.weights == "doubled" and low == high:
        pairs = [(low, 1.0), (low, 1.0)]
    return [(cell, weight) for cell, weight in pairs if 0 <= cell < size]
