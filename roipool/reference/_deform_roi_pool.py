"""Deformable ROI pooling: ROI align whose bins are moved, each by an offset of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from roipool.reference._box_pooling import BoxPooling
from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Floats,
    Pair,
    Scale,
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
from roipool.reference._rules import ROI_ALIGN, held_slopes


class _MovedBins(MovedBins):
    """ROI align's bins, as they move with the numbers of their box."""

    def motion(self, bins: Pair, size: Pair) -> Motion:
        """Return how samples move with the numbers of their box."""
        real = self.real
        down, across = (float(real(scale)) for scale in as_scales(self.scale))

        def moves(
            box: Box, ph: int, pw: int, found: Bin, sample: Sample
        ) -> Iterator[tuple[float, float]]:
            x1, y1, x2, y2, *_ = box
            (grid_h, grid_w), bin_number = found.grid, ph * bins[1] + pw
            offset_y, offset_x = self.offset(box, bins, ph, pw)
            y = (ph + (sample.number // grid_w + 0.5) / grid_h) / bins[0] + self.gamma * offset_y
            x = (pw + (sample.number % grid_w + 0.5) / grid_w) / bins[1] + self.gamma * offset_x
            yield 0.0, (1 - x) * across
            yield (1 - y) * down, 0.0
            yield 0.0, x * across
            yield y * down, 0.0
            length_x = float(real(x2) - real(x1)) * across
            length_y = float(real(y2) - real(y1)) * down
            for number in range(math.prod(bins)):
                yield 0.0, self.gamma * length_x if number == bin_number else 0.0
            for number in range(math.prod(bins)):
                yield self.gamma * length_y if number == bin_number else 0.0, 0.0

        return moves


@dataclass(frozen=True)
class DeformRoiPool(BoxPooling):
    """As :func:`roipool.deform_roi_pool` without a mask, slowly: every sample by itself.

    `count_dtype` is that of a bin's length when its samples are counted: float32 in mmcv.
    """

    offsets: Array
    spatial_scale: Scale = 1.0
    sampling_ratio: Size = 0
    _: KW_ONLY
    gamma: float = 0.1
    count_dtype: DType | None = None

    @property
    def moved(self) -> _MovedBins:
        """The bins of boxes with offsets."""
        real = as_real(self.coordinate_dtype)
        count_real = real if self.count_dtype is None else as_real(self.count_dtype)
        options = self.spatial_scale, as_pair(self.sampling_ratio), float(real(self.gamma))
        return _MovedBins(ROI_ALIGN.of_boxes(True), *options, real, count_real)

    def averages(self, images: int) -> Averages:
        """Return averages over boxes that have the offsets of their bins behind their corners."""
        boxes = as_boxes(self.rois, self.batch_indices, images)
        table = table_of(boxes, to_nchw(self.offsets, self.layout))
        return Averages(self.moved.define, table, None, self.layout, table.shape[1] - 1)

    def forward(self, features: Array, output_size: Size) -> Floats:
        """Return averages."""
        return self.averages(np.shape(features)[0]).forward(features, output_size)

    def backward(self, grad_output: Array, input_shape: Sequence[int]) -> Floats:
        """Return the gradient of maps: the transpose, sample by sample."""
        images = shape_nchw(input_shape, self.layout)[0]
        return self.averages(images).backward(grad_output, input_shape)

    def backward_numbers(self, grad_output: Array, features: Array) -> Floats:
        """Return the gradient of all numbers of boxes: a slope for every sample."""
        moved = self.moved

        def slopes_in(size: Pair) -> Slopes:
            real = moved.real
            return lambda sample: held_slopes(real(sample.y), real(sample.x), size, real)

        averages = self.averages(np.shape(features)[0])
        return averages.backward_boxes(grad_output, features, slopes_in, moved.motion)

    def backward_boxes(self, grad_output: Array, features: Array) -> Floats:
        """Return the gradient of boxes: a slope for every sample."""
        return self.backward_numbers(grad_output, features)[:, :4]

    def backward_offsets(self, grad_output: Array, features: Array) -> Floats:
        """Return the gradient of offsets: a slope for every sample."""
        slopes = self.backward_numbers(grad_output, features)[:, 4:]
        shape = to_nchw(self.offsets, self.layout).shape
        return from_nchw(slopes.reshape(shape), self.layout)
