"""The rules of each system, apart from one another, so that one of them can be changed.

An engine takes all of a system's decisions at once. To say *why* two systems differ, their rules
must be exchanged one at a time: what is the value if only the rounding of the box is the other's?
Here the oracle's own steps (`roipool.reference`) are put together by any combination of rules, with
the variations that tell what somebody's implementation does wrong. Positions are float32, as in the
systems; the tests compare the values with the engines.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roipool.cli.compare.choosing import system_of
from roipool.cli.compare.problem import Options
from roipool.reference import _crop_and_resize, _precise_roi_pool, _roi_align, _step_align
from roipool.reference._interpolation import Neighbours, _cut_bin, _round_half_away
from roipool.reference._roi_align import AlignRules
from roipool.reference._roi_pool import CAFFE, _pool_run
from roipool.verification.conformance.variations import half_to_even, side_with

__all__ = [
    "RULES",
    "AxisBin",
    "NotExplainedError",
    "Rules",
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
        The value of a bin that has no samples; if it is not 0, a maximum starts from it, too.
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


class NotExplainedError(Exception):
    """The value of a bin is not computed; the message says why."""


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


class Side(NamedTuple):
    """A box along one axis in map cells, as the rules for its ends make it; NaN if not finite."""

    start: Any
    length: Any


def side_of(rules: Rules, low: float, high: float, scale: float) -> Side:
    """Apply the rules for a box's ends; `low` and `high` in pixels."""
    with np.errstate(all="ignore"):
        start, length, _ = _align_rules(rules).side(low, high, scale, False, Real)
    return Side(start, length)


class _Bin(NamedTuple):
    """Which bin along an axis: of a side from `low` to `high` pixels, and a map of `size` cells."""

    low: float
    high: float
    number: int
    bins: int
    size: int
    options: Options


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
    NotExplainedError
        If it has thousands of samples.
    """
    side = side_of(rules, low, high, options.spatial_scale)
    if not np.isfinite(side.start + side.length):
        # Samples whose number does not depend on the box are there, but outside the map.
        there = rules.samples == "grid" and options.sampling_ratio > 0
        return AxisBin([], [[]] if there else [], 0.0)
    with np.errstate(all="ignore"):
        return _FINDERS[rules.samples](rules, side, _Bin(low, high, number, bins, size, options))


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

    Raises
    ------
    NotExplainedError
        If the bin has thousands of samples, or nothing but NaN for a maximum.
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
    with np.errstate(all="ignore"):
        values = _sample_values(image, down, along, rules.reduce != "mean")
        if rules.reduce == "mean":
            return float(values.sum() / (down.total * along.total))
    if not rules.empty and np.isnan(values).all():
        raise NotExplainedError("bins of which every sample is NaN")
    return float(np.fmax.reduce(values, axis=None, initial=rules.empty or -math.inf))


def _sample_values(
    image: FloatArray, down: AxisBin, along: AxisBin, reads_all: bool
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


def _corners(found: AxisBin) -> AxisBin:
    """Make a sample of each neighbour of a sample; one outside counts as 0."""
    cells = [[pair] for sample in found.cells for pair in sample or [(0, 0.0)]]
    return AxisBin([], cells, float(len(cells)))


def _matrix(found: AxisBin) -> tuple[list[int], NDArray[np.float64], NDArray[np.bool_]]:
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


def _grid(rules: Rules, side: Side, one: _Bin) -> AxisBin:
    align, ratio = _align_rules(rules), rules.ratio or one.options.sampling_ratio
    count = align.samples_per_bin(side.length, one.bins, ratio, Real, Real)
    if count > _MAX_COUNT:
        raise NotExplainedError(f"{count:,} samples of a bin along one axis")
    options = one.options.spatial_scale, ratio, False, Real, Real
    line = _roi_align._line(*one[:5], *options, align)
    return _interpolated(rules, [line.position(i) for i in range(count)], one.size)


def _interpolated(rules: Rules, positions: list[Any], size: int) -> AxisBin:
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
    return AxisBin([float(at) for at in positions], cells, len(positions))


def _cells(rules: Rules, side: Side, one: _Bin) -> AxisBin:
    if side.length <= 0:
        return AxisBin([], [], 0.0)
    if rules.rounding == "none" or rules.shift:
        low, high = _cut_bin(*side, one.number, one.bins, one.size, Real)
        read = range(math.floor(low), math.ceil(high))
    else:
        first, last = int(side.start), int(side.start + side.length)
        read = _pool_run(first, last, one.number, one.bins, one.size, Real, _AS_IT_IS)
    return AxisBin([float(cell) for cell in read], [[(cell, 1.0)] for cell in read], len(read))


def _steps(rules: Rules, side: Side, one: _Bin) -> AxisBin:
    ends = _cut_bin(*side, one.number, one.bins, one.size, Real)
    return _interpolated(rules, _step_align._steps(*ends, Real), one.size)


def _ends(rules: Rules, side: Side, one: _Bin) -> AxisBin:
    last_cell = Real(max(one.size - 1, 1))
    ends = side.start / last_cell, (side.start + side.length) / last_cell
    position = _crop_and_resize._crop_position(
        *ends, one.number, one.bins, one.size, Real, pinned=False, ratio_first=False
    )
    return _interpolated(rules, [position], one.size)


def _integral(rules: Rules, side: Side, one: _Bin) -> AxisBin:
    ends = side.start, side.start + side.length
    edges = _precise_roi_pool._edges(*ends, one.number, one.bins, 1.0, Real)
    if edges is None:
        return AxisBin([], [], 0.0)
    means = _precise_roi_pool._means(edges, one.size)
    weights = [(cell, float(mean)) for cell, mean in means.items()]
    return AxisBin([float(sum(edges) / 2)], [weights], 1.0)


_AS_IT_IS = CAFFE._replace(extra=0)  # a side whose rules are applied already
_FINDERS: dict[str, Callable[[Rules, Side, _Bin], AxisBin]] = {
    "grid": _grid,
    "cells": _cells,
    "steps": _steps,
    "ends": _ends,
    "integral": _integral,
}
