"""Deformable ROI pooling: ROI align whose bins are moved, each by an offset of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Floats,
    Pair,
    Rois,
    Size,
    as_boxes,
    as_pair,
    as_real,
    from_nchw,
    shape_nchw,
    to_nchw,
)
from roipool.reference._loops import Averages, Bin, Motion, Sample, Slopes
from roipool.reference._moved_bins import MovedBins, table_of
from roipool.reference._rules import ROI_ALIGN, held_slopes

RULES = ROI_ALIGN.of_boxes(True)


class _Options(MovedBins):
    """The options of a call."""

    def motion(self, bins: Pair, size: Pair) -> Motion:
        """Return how samples move with the numbers of their box."""
        real, scale = self.real, float(self.real(self.scale))

        def moves(
            box: Box, ph: int, pw: int, found: Bin, sample: Sample
        ) -> Iterator[tuple[float, float]]:
            x1, y1, x2, y2, *_ = box
            (grid_h, grid_w), bin_number = found.grid, ph * bins[1] + pw
            offset_y, offset_x = self.offset(box, bins, ph, pw)
            y = (ph + (sample.number // grid_w + 0.5) / grid_h) / bins[0] + self.gamma * offset_y
            x = (pw + (sample.number % grid_w + 0.5) / grid_w) / bins[1] + self.gamma * offset_x
            yield 0.0, (1 - x) * scale
            yield (1 - y) * scale, 0.0
            yield 0.0, x * scale
            yield y * scale, 0.0
            length_x, length_y = (
                float(real(last) - real(first)) * scale for first, last in ((x1, x2), (y1, y2))
            )
            for number in range(math.prod(bins)):
                yield 0.0, self.gamma * length_x if number == bin_number else 0.0
            for number in range(math.prod(bins)):
                yield self.gamma * length_y if number == bin_number else 0.0, 0.0

        return moves


def _averages(
    options: _Options,
    rois: Rois,
    offsets: Array,
    batch_indices: Array | None,
    layout: str,
    images: int,
) -> Averages:
    """Return the loops over boxes that have the offsets of their bins behind their corners."""
    table = table_of(as_boxes(rois, batch_indices, images), to_nchw(offsets, layout))
    return Averages(options.define, table, None, layout, table.shape[1] - 1)


def _options(
    scale: float, ratio: Size, gamma: float, dtype: DType, count_dtype: DType | None
) -> _Options:
    real = as_real(dtype)
    count_real = real if count_dtype is None else as_real(count_dtype)
    return _Options(RULES, scale, as_pair(ratio), float(real(gamma)), real, count_real)


def deform_roi_pool(
    features: Array,
    rois: Rois,
    offsets: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    gamma: float = 0.1,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    count_dtype: DType | None = None,
) -> Floats:
    """As :func:`roipool.deform_roi_pool` without a mask, slowly: every sample by itself.

    `count_dtype` is that of a bin's length when its samples are counted: float32 in mmcv.
    """
    options = _options(spatial_scale, sampling_ratio, gamma, coordinate_dtype, count_dtype)
    averages = _averages(options, rois, offsets, batch_indices, layout, np.shape(features)[0])
    return averages.forward(features, output_size)


def deform_roi_pool_backward(
    grad_output: Array,
    rois: Rois,
    offsets: Array,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    gamma: float = 0.1,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    count_dtype: DType | None = None,
) -> Floats:
    """As :func:`roipool.deform_roi_pool_backward`, slowly: the transpose, sample by sample."""
    options = _options(spatial_scale, sampling_ratio, gamma, coordinate_dtype, count_dtype)
    images = shape_nchw(input_shape, layout)[0]
    averages = _averages(options, rois, offsets, batch_indices, layout, images)
    return averages.backward(grad_output, input_shape)


def _backward_numbers(
    grad_output: Array,
    features: Array,
    rois: Rois,
    offsets: Array,
    options: _Options,
    batch_indices: Array | None,
    layout: str,
) -> Floats:
    """Return the gradient with respect to all numbers of the boxes."""

    def slopes_in(size: Pair) -> Slopes:
        real = options.real
        return lambda sample: held_slopes(real(sample.y), real(sample.x), size, real)

    averages = _averages(options, rois, offsets, batch_indices, layout, np.shape(features)[0])
    return averages.backward_boxes(grad_output, features, slopes_in, options.motion)


def deform_roi_pool_backward_rois(
    grad_output: Array,
    features: Array,
    rois: Rois,
    offsets: Array,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    gamma: float = 0.1,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    count_dtype: DType | None = None,
) -> Floats:
    """As :func:`roipool.deform_roi_pool_backward_rois`, slowly: a slope for every sample."""
    options = _options(spatial_scale, sampling_ratio, gamma, coordinate_dtype, count_dtype)
    at = batch_indices, layout
    return _backward_numbers(grad_output, features, rois, offsets, options, *at)[:, :4]


def deform_roi_pool_backward_offsets(
    grad_output: Array,
    features: Array,
    rois: Rois,
    offsets: Array,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    gamma: float = 0.1,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    count_dtype: DType | None = None,
) -> Floats:
    """As :func:`roipool.deform_roi_pool_backward_offsets`, slowly: a slope for every sample."""
    options = _options(spatial_scale, sampling_ratio, gamma, coordinate_dtype, count_dtype)
    at = batch_indices, layout
    slopes = _backward_numbers(grad_output, features, rois, offsets, options, *at)[:, 4:]
    return from_nchw(slopes.reshape(to_nchw(offsets, layout).shape), layout)
