"""Deformable position-sensitive ROI pooling, of MXNet's rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from roipool.reference._box_pooling import BoxPooling
from roipool.reference._inputs import (
    Array,
    Box,
    Boxes,
    Floats,
    Pair,
    Size,
    as_boxes,
    as_pair,
    as_real,
    as_scales,
    from_nchw,
    shape_nchw,
    to_nchw,
)
from roipool.reference._loops import Averages, Bin, Motion, Sample, Slopes
from roipool.reference._moved_bins import MovedBins, table_of
from roipool.reference._rules import DEFORMABLE_PS_ROI_POOL, slopes_between_centres
from roipool.reference._sides import side_of


def _parts_of(bins: int, parts: int) -> list[int]:
    """Return the part of each bin along an axis."""
    return [bin_number * parts // bins for bin_number in range(bins)]


def _of_bins(offsets: Floats, bins: Pair) -> Floats:
    """Return the offsets of bins from those of parts: (K, 2, rows, columns)."""
    rows, columns = (_parts_of(*pair) for pair in zip(bins, offsets.shape[2:], strict=True))
    return offsets[:, :, rows][:, :, :, columns]


def _by_class(array: Floats, classes: int) -> list[Floats]:
    """Return the channels of each class of an (N, C, H, W) array."""
    return np.split(array, classes, axis=1)


class _Classes:
    """The classes of a call, each with its own offsets, as averages of boxes with offsets."""

    def __init__(
        self, options: MovedBins, boxes: Boxes, offsets: Floats, bins: Pair, group_size: Pair
    ) -> None:
        self.count = offsets.shape[1] // 2
        self.averages = [
            Averages(options.define, table, None, "NCHW", table.shape[1] - 1, group_size)
            for own in _by_class(offsets, self.count)
            for table in [table_of(boxes, _of_bins(own, bins))]
        ]

    def joined(self, compute: Callable[..., Floats], *arrays: Floats) -> Floats:
        """Return the results of each class, of its channels of the arrays, side by side."""
        own = zip(*(_by_class(array, self.count) for array in arrays), strict=True)
        found = [compute(each, *of) for each, of in zip(self.averages, own, strict=True)]
        return np.concatenate(found, axis=1)


def _motion(options: MovedBins) -> Callable[[Pair, Pair], Motion]:
    """Return how samples move with the numbers of their box: with the offsets of their bin."""

    def motion(bins: Pair, size: Pair) -> Motion:
        count = math.prod(bins)

        def moves(
            box: Box, ph: int, pw: int, found: Bin, sample: Sample
        ) -> list[tuple[float, float]]:
            x1, y1, x2, y2, *_ = box
            height, width = (
                float(side_of(options.rules, *ends, scale, options.real).length)
                for ends, scale in zip(((y1, y2), (x1, x2)), as_scales(options.scale), strict=True)
            )
            moved, own = [(0.0, 0.0)] * (4 + 2 * count), 4 + ph * bins[1] + pw
            moved[own] = 0.0, options.gamma * width
            moved[own + count] = options.gamma * height, 0.0
            return moved

        return moves

    return motion


def _summed_by_part(gradient: Floats, parts: Pair) -> Floats:
    """Return the gradient by the offsets of parts from those of bins, (K, 2, rows, columns)."""
    sums = np.zeros((*gradient.shape[:2], *parts))
    rows, columns = (_parts_of(*pair) for pair in zip(gradient.shape[2:], parts, strict=True))
    for row, part_row in enumerate(rows):
        for column, part_column in enumerate(columns):
            sums[:, :, part_row, part_column] += gradient[:, :, row, column]
    return sums


@dataclass(frozen=True)
class DeformablePsRoiPool(BoxPooling):
    """As :func:`roipool.deformable_ps_roi_pool`, slowly: every sample by itself."""

    offsets: Array
    spatial_scale: float = 1.0
    samples: Size = 4
    _: KW_ONLY
    group_size: Size = 0
    gamma: float = 0.1

    @property
    def moved(self) -> MovedBins:
        """The bins of boxes with offsets."""
        real = as_real(self.coordinate_dtype)
        options = self.spatial_scale, as_pair(self.samples), float(real(self.gamma))
        return MovedBins(DEFORMABLE_PS_ROI_POOL, *options, real, real, "deformable")

    def classes(self, images: int, bins: Pair) -> _Classes:
        """Return the averages of each class."""
        boxes = as_boxes(self.rois, self.batch_indices, images)
        offsets = to_nchw(self.offsets, self.layout)
        return _Classes(self.moved, boxes, offsets, bins, as_pair(self.group_size))

    def forward(self, features: Array, output_size: Size) -> Floats:
        """Return averages."""
        maps, bins = to_nchw(features, self.layout), as_pair(output_size)
        classes = self.classes(len(maps), bins)
        pooled = classes.joined(lambda averages, part: averages.forward(part, bins), maps)
        return from_nchw(pooled, self.layout)

    def backward(self, grad_output: Array, input_shape: Sequence[int]) -> Floats:
        """Return the gradient of maps: the transpose, sample by sample."""
        images, channels, *size = shape_nchw(input_shape, self.layout)
        upstream = to_nchw(grad_output, self.layout)
        classes = self.classes(images, as_pair(upstream.shape[2:]))
        shape = images, channels // classes.count, *size
        gradient = classes.joined(lambda averages, part: averages.backward(part, shape), upstream)
        return from_nchw(gradient, self.layout)

    def backward_offsets(self, grad_output: Array, features: Array) -> Floats:
        """Return the gradient of offsets: a slope for every sample."""
        maps, upstream = to_nchw(features, self.layout), to_nchw(grad_output, self.layout)
        bins, parts = as_pair(upstream.shape[2:]), to_nchw(self.offsets, self.layout).shape[2:]
        moved = self.moved
        real = moved.real

        def slopes_in(size: Pair) -> Slopes:
            return lambda sample: slopes_between_centres(real(sample.y), real(sample.x), size, real)

        def of_class(averages: Averages, grad: Floats, part: Floats) -> Floats:
            numbers = averages.backward_boxes(grad, part, slopes_in, _motion(moved))
            by_bin = numbers[:, 4:].reshape(len(numbers), 2, *bins)
            return _summed_by_part(by_bin, as_pair(parts))

        gradient = self.classes(len(maps), bins).joined(of_class, upstream, maps)
        return from_nchw(gradient, self.layout)
