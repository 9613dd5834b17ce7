"""Deformable position-sensitive ROI pooling, of MXNet's rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from roipool.reference._inputs import (
    Array,
    Box,
    Boxes,
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
from roipool.reference._rules import DEFORMABLE_PS_ROI_POOL, slopes_between_centres
from roipool.reference._sides import side_of


def _options(scale: float, samples: Size, gamma: float, dtype: DType) -> MovedBins:
    real, rules = as_real(dtype), DEFORMABLE_PS_ROI_POOL
    ratio, factor = as_pair(samples), float(real(gamma))
    return MovedBins(rules, scale, ratio, factor, real, real, "deformable")


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


def deformable_ps_roi_pool(
    features: Array,
    rois: Rois,
    offsets: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    samples: Size = 4,
    *,
    group_size: Size = 0,
    gamma: float = 0.1,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """As :func:`roipool.deformable_ps_roi_pool`, slowly: every sample by itself."""
    maps, bins = to_nchw(features, layout), as_pair(output_size)
    options = _options(spatial_scale, samples, gamma, coordinate_dtype)
    boxes, own = as_boxes(rois, batch_indices, len(maps)), to_nchw(offsets, layout)
    classes = _Classes(options, boxes, own, bins, as_pair(group_size))
    pooled = classes.joined(lambda averages, part: averages.forward(part, bins), maps)
    return from_nchw(pooled, layout)


def deformable_ps_roi_pool_backward(
    grad_output: Array,
    rois: Rois,
    offsets: Array,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    samples: Size = 4,
    *,
    group_size: Size = 0,
    gamma: float = 0.1,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """As :func:`roipool.deformable_ps_roi_pool_backward`, slowly: sample by sample."""
    images, channels, *size = shape_nchw(input_shape, layout)
    upstream, own = to_nchw(grad_output, layout), to_nchw(offsets, layout)
    options = _options(spatial_scale, samples, gamma, coordinate_dtype)
    bins, boxes = as_pair(upstream.shape[2:]), as_boxes(rois, batch_indices, images)
    classes = _Classes(options, boxes, own, bins, as_pair(group_size))
    shape = images, channels // classes.count, *size
    gradient = classes.joined(lambda averages, part: averages.backward(part, shape), upstream)
    return from_nchw(gradient, layout)


def _motion(options: MovedBins) -> Callable[[Pair, Pair], Motion]:
    """Return how samples move with the numbers of their box: with the offsets of their bin."""

    def motion(bins: Pair, size: Pair) -> Motion:
        count = math.prod(bins)

        def moves(
            box: Box, ph: int, pw: int, found: Bin, sample: Sample
        ) -> list[tuple[float, float]]:
            x1, y1, x2, y2, *_ = box
            width, height = (
                float(side_of(options.rules, *ends, options.scale, options.real).length)
                for ends in ((x1, x2), (y1, y2))
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


def deformable_ps_roi_pool_backward_offsets(
    grad_output: Array,
    features: Array,
    rois: Rois,
    offsets: Array,
    spatial_scale: float = 1.0,
    samples: Size = 4,
    *,
    group_size: Size = 0,
    gamma: float = 0.1,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """As :func:`roipool.deformable_ps_roi_pool_backward_offsets`: a slope for every sample."""
    maps, upstream, own = (to_nchw(one, layout) for one in (features, grad_output, offsets))
    options = _options(spatial_scale, samples, gamma, coordinate_dtype)
    bins, boxes = as_pair(upstream.shape[2:]), as_boxes(rois, batch_indices, len(maps))
    real, parts = options.real, as_pair(own.shape[2:])

    def slopes_in(size: Pair) -> Slopes:
        return lambda sample: slopes_between_centres(real(sample.y), real(sample.x), size, real)

    def of_class(averages: Averages, grad: Floats, part: Floats) -> Floats:
        numbers = averages.backward_boxes(grad, part, slopes_in, _motion(options))
        return _summed_by_part(numbers[:, 4:].reshape(len(numbers), 2, *bins), parts)

    classes = _Classes(options, boxes, own, bins, as_pair(group_size))
    return from_nchw(classes.joined(of_class, upstream, maps), layout)
