"""The rules by which systems pool, each with the names of its alternatives.

A few small rules decide which cells of the map a bin of a box reads, and its value. `Rules` names
one alternative of each, and the tables of this module define the names. Alternatives that no system
follows are mistakes that implementations make.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from roipool.reference._inputs import Pair, Real, Scalar

# Cell before a position, cell after it, their weights:
Neighbours: TypeAlias = tuple[int, int, float, float]
Pixel: TypeAlias = tuple[int, int, float]  # row, column, weight


@dataclass(frozen=True)
class Rules:
    """The rules of a system."""

    rounding: str = "none"  # rounding of a box's ends: one of `ROUNDINGS`
    # Whether ends are rounded in a "cell", or a "pixel" of the image, before boxes are scaled.
    rounding_unit: str = "cell"
    # Subtracted from them: 0.5 where cell 0 covers -0.5 to 0.5. A pair is for boxes that are not
    # aligned, and for aligned ones.
    shift: float | tuple[float, float] = 0.0
    # Whether it is a part of a "cell", or of a "pixel" of the image, before boxes are scaled.
    shift_unit: str = "cell"
    # Added to a box's length: "none", a "cell", or a "pixel" or "rounded pixel" of the image.
    extra: str = "none"
    # The least length of a box in cells; None: also below 0. A pair is as for `shift`.
    minimum: float | tuple[float | None, float | None] | None = None
    # Meaning of the angle of a rotated box: one of `TURNS`.
    angle: str = "counter-clockwise"
    # What a bin reads: a "grid" of interpolated samples; all "cells" that it touches; samples in
    # "steps" of a cell from its start; one sample per bin, the first and last at the "ends" of the
    # box; or the "integral" of the interpolated map.
    samples: str = "grid"
    # Samples of a grid per bin and axis, where it is not what the caller asks for; 0 is adaptive.
    ratio: int | None = None
    adaptive: str = "ceil"  # the adaptive number of samples, from the bin's length: one of `COUNTS`
    centre: float = 0.5  # place of a sample of a grid in its part of the bin
    # Conversion of edges of bins to cells, for samples "cells": one of `EDGES`.
    edges: str = "floor and ceil"
    cut: int = 0  # last rows and columns of the map that no bin of "cells" reaches
    spread: str = "corners"  # places of the samples "ends": one of `SPREADS`
    # Which samples are outside the map and count as 0: one of `BORDERS`. The others are held at its
    # border, but "drop" leaves out the neighbours that are outside.
    border: str = "hold"
    weights: str = "linear"  # weights of a sample's neighbours: one of `WEIGHTS`
    # Choice of the copied cell where nothing is interpolated: one of `ROUNDINGS`.
    nearest: str = "half away"
    reads: str = "weighted"  # cells that are read although their weight is 0: one of `READS`
    # Divisor of a mean: one of `DIVISORS`. In a maximum, samples outside the map take part as 0,
    # except with "samples inside".
    divisor: str = "all samples"
    # "mean" or "max" of a bin's samples; "max of corners" is the largest weighted neighbour of any.
    reduce: str = "mean"
    ties: str = "first"  # argmax among equal samples: the "first" or "last"
    # The value of a bin that has no samples; if it is not 0, a maximum starts from it, too.
    empty: float = 0.0

    def differing(self, other: Rules) -> list[str]:
        """Return the names of the rules that are not the same."""
        names = [field.name for field in fields(self)]
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    def of_boxes(self, aligned: bool) -> Rules:
        """Return the rules for aligned boxes, or for those that are not: without a pair."""
        shift, minimum = self.shift, self.minimum
        return replace(
            self,
            shift=shift[aligned] if isinstance(shift, tuple) else shift,
            minimum=minimum[aligned] if isinstance(minimum, tuple) else minimum,
        )


# ---- Boxes


def round_half_away(value: Scalar | float) -> int:
    """Nearest integer, halves away from zero: exact, and an integer of any size."""
    magnitude = abs(float(value))
    whole = int(magnitude)
    whole += magnitude - whole >= 0.5
    return -whole if value < 0 else whole


def _half_up(value: Any) -> int:
    return math.floor(float(value) + 0.5)


def _half_added_in_type(value: Any) -> int:
    magnitude = math.floor(abs(value) + type(value)(0.5))
    return -magnitude if value < 0 else magnitude


ROUNDINGS: dict[str, Callable[[Any], int] | None] = {
    "none": None,
    "half away": round_half_away,
    "half even": lambda value: int(np.rint(value)),
    "half up": _half_up,
    "half added in its type": _half_added_in_type,
    "half added and cut": lambda value: int(float(value) + 0.5),
    "cut": int,
    "floor": math.floor,
}
TURNS = {
    "counter-clockwise": 1.0,
    "clockwise": -1.0,
    "degrees": math.pi / 180,
    "clockwise degrees": -math.pi / 180,
    "ignored": 0.0,
}  # what makes a box's angle radians, counter-clockwise


# ---- Samples of a bin

COUNTS: dict[str, Callable[[float], int] | int] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "floor, at least 1": lambda length: max(math.floor(length), 1),
    "nearest": _half_up,
    "always 0": 0,
    "always 1": 1,
    "always 2": 2,
}
EDGES: dict[str, tuple[Callable[[Any], int], Callable[[Any], int]]] = {
    "floor and ceil": (math.floor, math.ceil),
    "exact floor and ceil": (math.floor, math.ceil),  # of boxes of whole cells, in integers
    # The length of a bin is the box's times a reciprocal, which is one rounding too short.
    "short reciprocal": (math.floor, math.ceil),
    "floor and floor": (math.floor, math.floor),
    "nearest": (_half_up, _half_up),
}


class Spread(NamedTuple):
    """Where a box's bins have their one sample each, if not from corner to corner.

    The first is `start` of a step after the box's first edge, of `bins - fewer_steps` steps over a
    map of `size - less` cells; all are shifted by `shift`.
    """

    start: float
    fewer_steps: int
    less: int
    shift: float = 0.0


SPREADS: dict[str, Spread | None] = {
    "corners": None,  # as TensorFlow, in the order of its operations
    "exact corners": None,  # where rounding does not move the last sample
    "middles": Spread(0.5, 0, 0, 0.5),
    "corners over size": Spread(0.0, 1, 0),
    "corners over bins": Spread(0.0, 0, 1),
}


# ---- Reading the map


class Border(NamedTuple):
    """A sample is outside before `low`, and more than `high` behind the last cell's centre."""

    low: float
    high: float
    ends_are_outside: bool = False

    def excludes(self, at: Scalar, size: int) -> bool:
        """Whether a position on an axis is outside the map, or NaN."""
        if size == 0 or math.isnan(at):
            return True
        last = size - 1 + self.high
        return bool(
            at <= self.low or at >= last if self.ends_are_outside else at < self.low or at > last
        )


BORDERS = {
    "hold": Border(-1.0, 1.0),
    "zero": Border(0.0, 0.0),
    "drop": Border(-math.inf, math.inf),
    "zero before 0": Border(0.0, 1.0),
    "zero past the last": Border(-1.0, 0.0),
    "hold half a cell": Border(-0.5, 0.5),
    "hold less than a cell": Border(-1.0, 1.0, ends_are_outside=True),
    "hold all": Border(-math.inf, math.inf),
}


def held(at: Scalar, size: int, real: Real) -> Neighbours:
    """The cells before and after a position, with their weights.

    Ahead of the first cell's centre, or past the last's, it is that cell alone.
    """
    inside = max(at, real(0))
    low = int(inside)
    if low >= size - 1:
        return size - 1, size - 1, 1.0, 0.0
    return low, low + 1, float(real(1) - (inside - real(low))), float(inside - real(low))


def floor_and_ceil(at: Scalar, size: int, real: Real) -> Neighbours:
    """The cells at floor and ceil of a position, with their weights.

    On a cell's centre it is that cell twice, with weights 1 and 0.
    """
    fraction = at - real(math.floor(at))
    return math.floor(at), math.ceil(at), float(real(1) - fraction), float(fraction)


def _dropped(at: Scalar, size: int, real: Real) -> Neighbours:
    """Floor and ceil of a position with their weights, as the first ROI align layers have them."""
    low = math.floor(at)
    return low, math.ceil(at), float(real(1) - at + real(low)), float(at - real(low))


def _floor_and_next(at: Scalar, size: int, real: Real) -> Neighbours:
    """The cell at the floor of a position and the next one, with their weights."""
    low = math.floor(at)
    fraction = at - real(low)
    return low, low + 1, float(real(1) - fraction), float(fraction)


def _doubled(at: Scalar, size: int, real: Real) -> Neighbours:
    low, high = math.floor(at), math.ceil(at)
    return low, high, float(real(1) - at + real(low)), float(real(1) - real(high) + at)


def _swapped(at: Scalar, size: int, real: Real) -> Neighbours:
    low, high, before, after = held(at, size, real)
    return low, high, after, before


def _nearest(at: Scalar, size: int, real: Real) -> Neighbours:
    cell = min(max(round_half_away(at), 0), size - 1)
    return cell, cell, 1.0, 0.0


def _zero_before_first(at: Scalar, size: int, real: Real) -> Neighbours:
    if not at < 0:
        return held(at, size, real)
    return 0, 0, float(at - real(math.floor(at))), 0.0


def _wrapped(at: Scalar, size: int, real: Real) -> Neighbours:
    if not at < 0:
        return held(at, size, real)
    after = float(at - real(math.floor(at)))
    return size - 1, 0, 1 - after, after


def _cut_to_zero(at: Scalar, size: int, real: Real) -> Neighbours:
    if not at < 0 or size < 2:
        return held(at, size, real)
    return (0, 1, float(real(1) - at), float(at)) if at > -1 else (0, 0, 0.0, 0.0)


def _zero_past_last(at: Scalar, size: int, real: Real) -> Neighbours:
    if not at > size - 1:
        return held(at, size, real)
    return size - 1, size - 1, float(real(size) - at), 0.0


WEIGHTS: dict[str, Callable[[Any, int, Real], Neighbours]] = {
    "linear": held,
    "doubled": _doubled,  # a sample on a cell's centre counts it twice
    "swapped": _swapped,
    "nearest": _nearest,
    "zero before the first": _zero_before_first,
    "last before the first": _wrapped,
    "negative before the first": _cut_to_zero,
    "zero past the last": _zero_past_last,
}


def neighbours(rules: Rules, at: Scalar, size: int, real: Real) -> list[tuple[int, float]]:
    """The cells that a sample reads on one axis, with their weights; none if it is outside."""
    if BORDERS[rules.border].excludes(at, size):
        return []
    weigh = WEIGHTS[rules.weights]
    if rules.weights == "linear" and rules.border == "drop":
        weigh = _dropped if rules.samples == "steps" else _floor_and_next
    elif rules.weights == "linear" and rules.border == "zero" and rules.samples == "ends":
        weigh = floor_and_ceil
    low, high, before, after = weigh(at, size, real)
    return [(cell, weight) for cell, weight in ((low, before), (high, after)) if 0 <= cell < size]


def product(down: float, across: float) -> float:
    """The product of two weights where rows and columns are weighted one after the other.

    It is 0 only if one of them is, or else a NaN would not be read.
    """
    return down * across or (min(down, across) if down and across else 0.0)


def slopes(rows: Neighbours, columns: Neighbours) -> tuple[list[Pixel], list[Pixel]]:
    """The derivatives for y and for x of the weights of a sample's four cells.

    There are none on an axis where both cells are one.
    """
    (y0, y1, above, below), (x0, x1, left, right) = rows, columns
    for_y = [(y0, x0, -left), (y0, x1, -right), (y1, x0, left), (y1, x1, right)]
    for_x = [(y0, x0, -above), (y0, x1, above), (y1, x0, -below), (y1, x1, below)]
    return for_y if y0 < y1 else [], for_x if x0 < x1 else []


def held_slopes(y: Scalar, x: Scalar, size: Pair, real: Real) -> tuple[list[Pixel], list[Pixel]]:
    """The slopes of a sample at (y, x) whose border is "hold", for y and for x.

    There are none where it is outside or held at the border.
    """
    border = BORDERS["hold"]
    if border.excludes(y, size[0]) or border.excludes(x, size[1]):
        return [], []
    for_y, for_x = slopes(held(y, size[0], real), held(x, size[1], real))
    return for_y if y >= 0 else [], for_x if x >= 0 else []


def slopes_between_centres(
    y: Scalar, x: Scalar, size: Pair, real: Real
) -> tuple[list[Pixel], list[Pixel]]:
    """The slopes of a sample at (y, x) that is held at the centres of the outermost cells.

    There are none where it is outside, held, or on a cell's centre.
    """
    border = BORDERS["hold half a cell"]
    if border.excludes(y, size[0]) or border.excludes(x, size[1]):
        return [], []
    at = [min(max(one, real(0)), real(of - 1)) for one, of in zip((y, x), size, strict=True)]
    rows, columns = (floor_and_ceil(one, of, real) for one, of in zip(at, size, strict=True))
    return slopes(rows, columns)


class Reading(NamedTuple):
    """Whether samples read their neighbours of weight 0, and those outside the first cell."""

    neighbours: bool
    first_cell: bool


READS = {
    "weighted": Reading(neighbours=False, first_cell=False),
    "neighbours": Reading(neighbours=True, first_cell=False),
    "first cell": Reading(neighbours=False, first_cell=True),
    "neighbours and first cell": Reading(neighbours=True, first_cell=True),
}
DIVISORS: dict[str, Callable[[int, int], int]] = {
    # From the number of a bin's samples, and of those inside the map.
    "all samples": lambda samples, inside: samples,
    "nothing": lambda samples, inside: 1,
    "samples inside": lambda samples, inside: inside,
    "all samples, even 0": lambda samples, inside: samples,
}


# ---- Operations

ROI_POOL = Rules("half away", extra="cell", minimum=1.0, samples="cells", reduce="max")
OPENVINO_ROI_POOL = replace(ROI_POOL, edges="exact floor and ceil")
ROI_AVERAGE_POOL = Rules("half away", minimum=1.0, samples="cells")
PS_ROI_POOL = Rules("half away", rounding_unit="pixel", extra="pixel", minimum=0.1, samples="cells")
DEFORMABLE_PS_ROI_POOL = Rules(
    "half away",
    rounding_unit="pixel",
    shift=0.5,
    extra="pixel",
    minimum=0.1,
    centre=0.0,
    border="hold half a cell",
    divisor="samples inside",
)
TORCHVISION_PS_ROI_POOL = replace(ROI_AVERAGE_POOL, cut=1)
PRECISE_ROI_POOL = Rules(samples="integral", border="zero")
ROI_ALIGN = Rules(shift=(0.0, 0.5), minimum=(1.0, None))
CROP_AND_RESIZE = Rules(samples="ends", border="zero")
MMCV_ROI_POOL = Rules(extra="pixel", samples="cells", reduce="max")
MMCV_ROI_ALIGN_MAX = replace(ROI_ALIGN, reduce="max", empty=-10000.0)
ONNX_ROI_ALIGN_MAX = replace(ROI_ALIGN, reduce="max of corners")
MXNET_ROI_ALIGN = Rules(extra="cell", samples="steps", border="drop", reduce="max")
CAFFE_ROI_ALIGN = replace(MXNET_ROI_ALIGN, weights="doubled")
