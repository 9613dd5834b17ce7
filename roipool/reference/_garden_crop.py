"""The crops of TensorFlow's model garden: one sample per bin, extrapolated ahead of the map."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from roipool.reference._bins import Line, crossed
from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Floats,
    Pair,
    Real,
    Rois,
    Size,
    as_pair,
    as_real,
)
from roipool.reference._loops import Averages, Bin, Definition, Motion, Sample, Slopes
from roipool.reference._multilevel_roi_align import (
    box_gradient_by_level,
    gradients_by_level,
    pooled_by_level,
)
from roipool.reference._rules import Neighbours, Pixel, Rules, slopes

_RULES = Rules(samples="ends", border="hold all")


def _cells(at: float, size: int, real: Real) -> Neighbours:
    """The two cells of a position, held inside the map, and their weights, which are not."""
    cell = min(max(math.floor(at), 0), size - 1)
    if cell == size - 1:
        return cell, cell, 1.0, 0.0
    fraction = real(at) - real(cell)
    return cell, cell + 1, float(real(1) - fraction), float(fraction)


def _line(
    ends: tuple[float, float], p: int, bins: int, size: int, offset: float, real: Real
) -> Line:
    """The sample of bin `p` of a side whose ends are in cells."""
    start = real(ends[0])
    length = real(ends[1]) - start
    at = start + (real(p) + real(offset)) * length / real(bins)
    if size == 0 or not np.isfinite(at):
        return Line(1, [], float, 1)
    first, second, near, far = _cells(float(at), size, real)
    return Line(1, [(0, float(at), [(first, near), (second, far)])], float, 1)


def _read_of(first_map: Pair, level: int) -> Pair:
    """The rows and columns of a map that are read, of those of the first map."""
    rows, columns = (max(size >> level, min(size, 1)) for size in first_map)
    return rows, columns


def _crops(
    rois: Array, scale: float, offset: float, size: Pair, coordinate_dtype: DType
) -> Averages:
    """The crops of boxes from one map, of which so many rows and columns are read."""
    real = as_real(coordinate_dtype)

    def of_maps(bins: Pair, _: Pair) -> Definition:
        def definition(box: Box, ph: int, pw: int) -> Bin:
            x1, y1, x2, y2 = (float(real(end) * real(scale)) for end in box)
            rows = _line((y1, y2), ph, bins[0], size[0], offset, real)
            columns = _line((x1, x2), pw, bins[1], size[1], offset, real)
            return crossed(_RULES, rows, columns, real)

        return definition

    return Averages(of_maps, rois)


def _slopes(size: Pair, real: Real) -> Callable[[Pair], Slopes]:
    def of_map(_: Pair) -> Slopes:
        def slopes_at(sample: Sample) -> tuple[list[Pixel], list[Pixel]]:
            return slopes(_cells(sample.y, size[0], real), _cells(sample.x, size[1], real))

        return slopes_at

    return of_map


def _motion(scale: float, offset: float) -> Callable[[Pair, Pair], Motion]:
    def of_bins(bins: Pair, size: Pair) -> Motion:
        def moves(
            box: Box, ph: int, pw: int, found: Bin, sample: Sample
        ) -> Iterator[tuple[float, float]]:
            y, x = ((p + offset) / count for p, count in zip((ph, pw), bins, strict=True))
            yield 0.0, scale * (1 - x)
            yield scale * (1 - y), 0.0
            yield 0.0, scale * x
            yield scale * y, 0.0

        return moves

    return of_bins


def multilevel_garden_crop(
    features: Sequence[Array],
    rois: Rois,
    output_size: Size,
    spatial_scales: Sequence[float],
    *,
    sample_offset: float,
    levels: Array,
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """As ``compat.model_garden.multilevel_crop_and_resize``, slowly, for boxes with levels."""
    table, first_map = np.asarray(rois, np.float64), as_pair(np.shape(features[0])[2:])
    every = []
    for level, (image, scale) in enumerate(zip(features, spatial_scales, strict=True)):
        size = _read_of(first_map, level)
        crops = _crops(table, scale, sample_offset, size, coordinate_dtype)
        every.append(crops.forward(image, output_size))
    return pooled_by_level(levels, every)


def multilevel_garden_crop_backward(
    grad_output: Array,
    rois: Rois,
    input_shapes: Sequence[Sequence[int]],
    spatial_scales: Sequence[float],
    *,
    sample_offset: float,
    levels: Array,
    coordinate_dtype: DType = np.float64,
) -> list[Floats]:
    """As its backward, slowly: a gradient for each of the maps."""

    def one_map(level: int, gradient: Array, boxes: Array) -> Floats:
        size = _read_of(as_pair(input_shapes[0][2:]), level)
        crops = _crops(boxes, spatial_scales[level], sample_offset, size, coordinate_dtype)
        return crops.backward(gradient, input_shapes[level])

    table = np.asarray(rois, np.float64)
    return gradients_by_level(levels, grad_output, table, len(input_shapes), one_map)


def multilevel_garden_crop_backward_rois(
    grad_output: Array,
    features: Sequence[Array],
    rois: Rois,
    spatial_scales: Sequence[float],
    *,
    sample_offset: float,
    levels: Array,
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """As its gradient with respect to boxes, slowly: x1, y1, x2, y2."""

    def one_map(level: int, gradient: Array, boxes: Array) -> Floats:
        scale, size = spatial_scales[level], _read_of(as_pair(np.shape(features[0])[2:]), level)
        crops = _crops(boxes, scale, sample_offset, size, coordinate_dtype)
        slopes_of, moves = _slopes(size, as_real(coordinate_dtype)), _motion(scale, sample_offset)
        return crops.backward_boxes(gradient, features[level], slopes_of, moves)

    table = np.asarray(rois, np.float64)
    return box_gradient_by_level(levels, grad_output, table, len(features), one_map)
