"""Average and maximum of the samples of every bin, forward and backward.

The loops are the same for every operation. What an operation is, its `Definition` says: the samples
of a bin of a box, and the pixels and weights of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from roipool.reference._inputs import Box, Boxes, Floats, Integers, Pair, _pair

LOWEST_FLOAT32 = float(np.finfo(np.float32).min)
Pixel: TypeAlias = tuple[int, int, float]  # row, column, weight


class Sample(NamedTuple):
    """One point of a bin: its number, its position, its pixels (none if outside the map).

    Pixels of weight 0 are read only if it `reads_all`.
    """

    number: int
    y: float
    x: float
    pixels: list[Pixel]
    reads_all: bool = False


class Bin(NamedTuple):
    """A bin's samples in row-major order, and how many rows and columns its full grid has."""

    samples: list[Sample]
    grid: Pair


EMPTY = Bin([], (0, 0))


def _whole(found: Bin) -> Bin:
    """A bin as it is."""
    return found


Definition: TypeAlias = Callable[[Box, int, int], Bin]  # (box, ph, pw) -> the samples of that bin


def _every_bin(
    boxes: Boxes, bins: Pair, definition: Definition
) -> Iterator[tuple[int, int, int, int, Bin]]:
    """(k, image, ph, pw, bin) of every bin of every box."""
    for k, (n, box) in enumerate(boxes):
        for ph in range(bins[0]):
            for pw in range(bins[1]):
                yield k, n, ph, pw, definition(box, ph, pw)


def _weighted_sum(image: Floats, pixels: list[Pixel]) -> Floats:
    """Per channel: weight times pixel, added in the order given; 0 for no pixels."""
    if not pixels:
        return np.zeros(len(image))
    if len(pixels) <= 4:  # one sample's, in half the time
        (y, x, weight), *others = pixels
        total: Floats = image[:, y, x] * weight
        for y, x, weight in others:
            total += image[:, y, x] * weight
        return total
    rows, columns, weights = zip(*pixels, strict=True)
    products = image[:, rows, columns] * np.array(weights)
    return np.add.accumulate(products, axis=1)[:, -1]


def _used(pixels: list[Pixel]) -> list[Pixel]:
    """The pixels that count: weight 0 is neither read (it may be NaN) nor given a gradient."""
    return [pixel for pixel in pixels if pixel[2] != 0]


@np.errstate(over="ignore", invalid="ignore")
def _average(
    features: Floats, boxes: Boxes, bins: Pair, definition: Definition, outside: float = 0.0
) -> Floats:
    """Mean of every bin's samples over its full grid; `outside` where none is in the map."""
    output = np.full((len(boxes), features.shape[1], *bins), outside, np.float64)
    for k, n, ph, pw, found in _every_bin(boxes, bins, definition):
        if any(sample.pixels for sample in found.samples):
            pixels = [
                pixel
                for sample in found.samples
                for pixel in (sample.pixels if sample.reads_all else _used(sample.pixels))
            ]
            output[k, :, ph, pw] = _weighted_sum(features[n], pixels) / math.prod(found.grid)
    return output


@np.errstate(over="ignore", invalid="ignore")
def _average_backward(
    grad_output: Floats, boxes: Boxes, shape: Sequence[int], definition: Definition
) -> Floats:
    """Transpose of `_average`: each pixel gets the bin's gradient, weight over count."""
    # Dense samples add up hundreds of terms, whose roundings would outweigh an engine's.
    grad = np.zeros(shape, np.longdouble)
    for k, n, ph, pw, found in _every_bin(boxes, _pair(grad_output.shape[2:]), definition):
        upstream = grad_output[k, :, ph, pw] / max(math.prod(found.grid), 1)
        for sample in found.samples:
            for y, x, weight in _used(sample.pixels):
                grad[n, :, y, x] += weight * upstream
    return grad.astype(np.float64)


class Maxima(NamedTuple):
    """Maximum of every bin; number and position of the sample that has it (-1 where none)."""

    value: Floats
    number: Integers
    y: Floats
    x: Floats


@np.errstate(over="ignore", invalid="ignore")
def _maximum(
    features: Floats,
    boxes: Boxes,
    bins: Pair,
    definition: Definition,
    start: float = -math.inf,
    scan_all: bool = False,
) -> Maxima:
    """Running maximum of every bin from `start`: the first of equal samples wins, NaN never does.

    A sample outside the map takes part with value 0. A bin without any sample inside the map is 0
    and has no argmax, unless `scan_all`: then it is scanned like the others.
    """
    shape = (len(boxes), features.shape[1], *bins)
    maxima = Maxima(
        np.zeros(shape), np.full(shape, -1, np.int64), np.full(shape, -1.0), np.full(shape, -1.0)
    )
    for k, n, ph, pw, found in _every_bin(boxes, bins, definition):
        if scan_all or any(sample.pixels for sample in found.samples):
            maximum, number, y, x = (array[k, :, ph, pw] for array in maxima)  # views
            maximum[:] = start
            for sample in found.samples:
                value = _weighted_sum(features[n], sample.pixels)
                wins = value > maximum
                if not wins.any():
                    continue
                maximum[wins], number[wins], y[wins], x[wins] = (
                    value[wins],
                    sample.number,
                    sample.y,
                    sample.x,
                )
    return maxima


@np.errstate(over="ignore", invalid="ignore")
def _maximum_backward(
    grad_output: Floats,
    argmax: Integers,
    boxes: Boxes,
    shape: Sequence[int],
    definition: Definition,
) -> Floats:
    """Transpose of the winning samples, in the channels that they won.

    Every pixel of the winning sample gets the bin's gradient times its weight.
    """
    grad = np.zeros(shape)
    for k, n, ph, pw, found in _every_bin(boxes, _pair(grad_output.shape[2:]), definition):
        selected = set(argmax[k, :, ph, pw].tolist())
        for sample in found.samples:
            if sample.number not in selected:
                continue
            won = argmax[k, :, ph, pw] == sample.number
            upstream = grad_output[k, won, ph, pw]
            for y, x, weight in _used(sample.pixels):
                grad[n, won, y, x] += weight * upstream
    return grad


def _slope(grad_output: Floats, image: Floats, pixels: list[Pixel]) -> float:
    """What moving a sample along one axis changes.

    `pixels` holds the derivatives of the sample's weights for that axis.
    """
    return float(np.sum(grad_output * _weighted_sum(image, _used(pixels)))) if pixels else 0.0


def _by_end(slope: float, share: float) -> float:
    """What moving one end of a box changes, given the `share` of it by which a sample moves.

    A sample that does not move changes nothing, whatever it reads.
    """
    return slope * share if share else 0.0
