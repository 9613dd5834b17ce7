"""Average and maximum of the samples of every bin, forward and backward.

The loops are the same for every operation. A `Definition` gives the samples of a bin of a box, and
the cells and weights of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from roipool.reference._inputs import (
    Array,
    Box,
    Boxes,
    Floats,
    Integers,
    Pair,
    Rois,
    Size,
    as_boxes,
    as_pair,
    from_nchw,
    shape_nchw,
    to_nchw,
)
from roipool.reference._rules import Pixel

LOWEST_FLOAT32 = float(np.finfo(np.float32).min)


class Sample(NamedTuple):
    """One point of a bin."""

    number: int  # its number in the bin; of a cell, its index in the map
    # Its position.
    y: float
    x: float
    # Row, column and weight of the cells that it reads; none if it is outside the map.
    pixels: list[Pixel]
    reads_all: bool = False  # whether cells of weight 0 are read, too


class Bin(NamedTuple):
    """A bin's samples in row-major order, and how many rows and columns its full grid has."""

    samples: list[Sample]
    grid: Pair

    def value_of_sample(self, number: int, maps: Floats) -> Floats:
        """Return what the sample of a number reads of maps (C, H, W); 0 where it is outside."""
        pixels = [one.pixels for one in self.samples if one.number == number]
        return read(maps, pixels[0] if pixels else [])


EMPTY = Bin([], (0, 0))
Definition: TypeAlias = Callable[[Box, int, int], Bin]  # (box, ph, pw) -> the samples of that bin


def read(image: Floats, pixels: list[Pixel]) -> Floats:
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


def used(pixels: list[Pixel]) -> list[Pixel]:
    """The pixels that count: weight 0 is neither read (it may be NaN) nor given a gradient."""
    return [pixel for pixel in pixels if pixel[2] != 0]


def slope_of(grad_output: Floats, image: Floats, pixels: list[Pixel]) -> float:
    """What moving a sample along one axis changes.

    `pixels` holds the derivatives of the sample's weights for that axis.
    """
    return float((grad_output * read(image, used(pixels))).sum()) if pixels else 0.0


Motion: TypeAlias = Callable[[Box, int, int, Bin, Sample], Iterable[tuple[float, float]]]
Slopes: TypeAlias = Callable[[Sample], tuple[list[Pixel], list[Pixel]]]


def channels_of_bin(number: Pair, groups: Pair, bins: Pair) -> slice:
    """Return the channels of the features that a bin is pooled from."""
    down, across = groups
    row, column = number[0] * down // bins[0], number[1] * across // bins[1]
    return slice(row * across + column, None, down * across)


@dataclass(frozen=True)
class BinLoops:
    """Boxes and their bins: what the loops of averages and maxima share."""

    # Returns the definition, for the numbers of bins and the size of a map.
    define: Callable[[Pair, Pair], Definition]
    # Boxes in any of the three forms.
    rois: Rois
    batch_indices: Array | None = None
    layout: str = "NCHW"  # axes of maps and results
    numbers: int = 4  # numbers of a box
    # Groups of bins, down and across, each pooled from channels of its own; 0: as many as bins.
    group_size: Pair = (1, 1)

    def groups_of(self, bins: Pair) -> Pair:
        """Return how many groups of bins there are, down and across."""
        return self.group_size[0] or bins[0], self.group_size[1] or bins[1]

    def channels_of(self, ph: int, pw: int, bins: Pair) -> slice:
        """Return the channels of the features that a bin is pooled from."""
        return channels_of_bin((ph, pw), self.groups_of(bins), bins)

    def boxes(self, images: int) -> Boxes:
        """Return the boxes with their images, of so many."""
        return as_boxes(self.rois, self.batch_indices, images, self.numbers)

    def every_bin(
        self, boxes: Boxes, bins: Pair, size: Sequence[int]
    ) -> Iterator[tuple[int, int, int, int, Bin]]:
        """Yield (k, image, ph, pw, bin) of every bin of every box."""
        definition = self.define(bins, as_pair(size))
        for k, (n, box) in enumerate(boxes):
            for ph in range(bins[0]):
                for pw in range(bins[1]):
                    yield k, n, ph, pw, definition(box, ph, pw)


class Averages(BinLoops):
    """An operation that averages the samples of every bin."""

    @np.errstate(over="ignore", invalid="ignore")
    def forward(self, features: Array, output_size: Size, outside: float = 0.0) -> Floats:
        """Return the mean of samples over each full grid; `outside` where none is in the map."""
        planes, bins = to_nchw(features, self.layout), as_pair(output_size)
        boxes = self.boxes(len(planes))
        count = planes.shape[1] // math.prod(self.groups_of(bins))
        output = np.full((len(boxes), count, *bins), outside, np.float64)
        for k, n, ph, pw, found in self.every_bin(boxes, bins, planes.shape[2:]):
            if any(sample.pixels for sample in found.samples):
                pixels = [
                    pixel
                    for sample in found.samples
                    for pixel in (sample.pixels if sample.reads_all else used(sample.pixels))
                ]
                image = planes[n, self.channels_of(ph, pw, bins)]
                output[k, :, ph, pw] = read(image, pixels) / math.prod(found.grid)
        return from_nchw(output, self.layout)

    @np.errstate(over="ignore", invalid="ignore")
    def backward(self, grad_output: Array, input_shape: Sequence[int]) -> Floats:
        """Return the transpose: each pixel gets the bin's gradient, weight over count."""
        shape, upstream = shape_nchw(input_shape, self.layout), to_nchw(grad_output, self.layout)
        boxes, bins = self.boxes(shape[0]), as_pair(upstream.shape[2:])
        # Dense samples add up hundreds of terms, whose roundings would outweigh an engine's.
        grad = np.zeros(shape, np.longdouble)
        for k, n, ph, pw, found in self.every_bin(boxes, bins, shape[2:]):
            share = upstream[k, :, ph, pw] / max(math.prod(found.grid), 1)
            own = self.channels_of(ph, pw, bins)
            for sample in found.samples:
                for y, x, weight in used(sample.pixels):
                    grad[n, own, y, x] += weight * share
        return from_nchw(grad.astype(np.float64), self.layout)

    @np.errstate(over="ignore", invalid="ignore")
    def backward_boxes(
        self,
        grad_output: Array,
        features: Array,
        slopes: Callable[[Pair], Slopes],
        motion: Callable[[Pair, Pair], Motion],
    ) -> Floats:
        """Return the slope of the map at every sample, times the sample's motion.

        Parameters
        ----------
        grad_output, features
            In the layout.
        slopes : callable
            From a map's size to a function from a sample to the derivatives of its weights for y
            and for x.
        motion : callable
            From the numbers of bins, and a map's size, to a function that yields by how much y and
            x of a sample move with each number of its box.
        """
        planes, upstream = to_nchw(features, self.layout), to_nchw(grad_output, self.layout)
        bins, size = as_pair(upstream.shape[2:]), as_pair(planes.shape[2:])
        boxes, slopes_at, moves = self.boxes(len(planes)), slopes(size), motion(bins, size)
        grad = np.zeros((len(boxes), self.numbers))
        for k, n, ph, pw, found in self.every_bin(boxes, bins, size):
            share = upstream[k, :, ph, pw] / max(math.prod(found.grid), 1)
            image = planes[n, self.channels_of(ph, pw, bins)]
            for sample in found.samples:
                dy, dx = (slope_of(share, image, pixels) for pixels in slopes_at(sample))
                motion_of = moves(boxes[k][1], ph, pw, found, sample)
                # A sample that does not move changes nothing, whatever it reads.
                grad[k] += [(dy * y if y else 0.0) + (dx * x if x else 0.0) for y, x in motion_of]
        return grad


class Found(NamedTuple):
    """Maximum of every bin; number and position of the sample that has it (-1 where none)."""

    value: Floats
    number: Integers
    y: Floats
    x: Floats


class Maxima(BinLoops):
    """An operation that takes the maximum of the samples of every bin."""

    @np.errstate(over="ignore", invalid="ignore")
    def forward(
        self,
        features: Array,
        output_size: Size,
        start: float = -math.inf,
        scan_all: bool = False,
        skip_outside: bool = False,
    ) -> Found:
        """Return running maxima from `start`: the first of equal samples wins, NaN never does.

        A sample outside the map takes part with value 0, unless `skip_outside`. A bin without any
        sample inside the map is 0 and has no argmax, unless `scan_all`: then it is scanned like the
        others.
        """
        planes, bins = to_nchw(features, self.layout), as_pair(output_size)
        boxes = self.boxes(len(planes))
        count = planes.shape[1] // math.prod(self.groups_of(bins))
        shape = (len(boxes), count, *bins)
        maxima = (
            np.zeros(shape),
            np.full(shape, -1, np.int64),
            np.full(shape, -1.0),
            np.full(shape, -1.0),
        )
        for k, n, ph, pw, found in self.every_bin(boxes, bins, planes.shape[2:]):
            if scan_all or any(sample.pixels for sample in found.samples):
                maximum, number, y, x = (array[k, :, ph, pw] for array in maxima)  # views
                maximum[:] = start
                image = planes[n, self.channels_of(ph, pw, bins)]
                for sample in found.samples:
                    if skip_outside and not sample.pixels:
                        continue
                    value = read(image, sample.pixels)
                    wins = value > maximum
                    if wins.any():
                        maximum[wins], number[wins] = value[wins], sample.number
                        y[wins], x[wins] = sample.y, sample.x
        return Found(*(from_nchw(array, self.layout) for array in maxima))

    @np.errstate(over="ignore", invalid="ignore")
    def backward(self, grad_output: Array, argmax: Array, input_shape: Sequence[int]) -> Floats:
        """Return the transpose of the winning samples, in the channels that they won.

        Every pixel of the winning sample gets the bin's gradient times its weight.
        """
        shape, upstream = shape_nchw(input_shape, self.layout), to_nchw(grad_output, self.layout)
        boxes, bins = self.boxes(shape[0]), as_pair(upstream.shape[2:])
        indices = to_nchw(argmax, self.layout).astype(np.int64)
        grad = np.zeros(shape)
        for k, n, ph, pw, found in self.every_bin(boxes, bins, shape[2:]):
            selected = set(indices[k, :, ph, pw].tolist())
            own = np.arange(shape[1])[self.channels_of(ph, pw, bins)]
            for sample in found.samples:
                if sample.number in selected:
                    won = indices[k, :, ph, pw] == sample.number
                    for y, x, weight in used(sample.pixels):
                        grad[n, own[won], y, x] += weight * upstream[k, won, ph, pw]
        return from_nchw(grad, self.layout)
