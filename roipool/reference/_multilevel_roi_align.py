"""ROI align over a pyramid's maps: each box from the map of its level, one level at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from roipool.reference._inputs import Array, Floats, Integers, Rois, Size, as_boxes
from roipool.reference._roi_align import roi_align, roi_align_backward, roi_align_backward_rois
from roipool.reference._roi_pool import roi_pool, roi_pool_backward

# The gradient of one map's boxes, from the number of the map, a gradient of pooled values, and
# the boxes.
Gradient: TypeAlias = Callable[[int, Array, Array], Floats]


def pooled_by_level(levels: Array, every: Sequence[Floats]) -> Floats:
    """Values of each box from those of its level's map; 0 for a box of no map."""
    pooled = np.zeros(every[0].shape)
    for level, values in enumerate(every):
        own = np.asarray(levels) == level
        pooled[own] = values[own]
    return pooled


def gradients_by_level(
    levels: Array, grad_output: Array, table: Floats, maps: int, one_map: Gradient
) -> list[Floats]:
    """The gradient of each map, from its own boxes."""
    gradient = np.asarray(grad_output)
    owned = [np.asarray(levels) == level for level in range(maps)]
    return [one_map(level, gradient[own], table[own]) for level, own in enumerate(owned)]


def box_gradient_by_level(
    levels: Array, grad_output: Array, table: Floats, maps: int, one_map: Gradient
) -> Floats:
    """The gradient of each box, from its level's map; levels count as constant."""
    gradient, grad = np.asarray(grad_output), np.zeros((len(table), 4))
    for level in range(maps):
        own = np.asarray(levels) == level
        grad[own] = one_map(level, gradient[own], table[own])
    return grad


def assign_levels(
    rois: Array,
    min_level: int,
    max_level: int,
    canonical_size: float = 224.0,
    canonical_level: int = 4,
) -> Integers:
    """As :func:`roipool.assign_levels`, slowly: Lin et al. (2017), equation 1, box by box."""
    places = []
    for row in np.asarray(rois, np.float64).tolist():
        x1, y1, x2, y2 = row[-4:]
        level = min_level
        while (
            level < max_level
            and x1 < x2
            and (x2 - x1) * (y2 - y1)
            >= (canonical_size * 2.0 ** (level + 1 - canonical_level)) ** 2
        ):
            level += 1
        places.append(level - min_level)
    return np.array(places, np.int64)


def multilevel_roi_align(
    features: Sequence[Array],
    rois: Rois,
    output_size: Size,
    spatial_scales: Sequence[float],
    sampling_ratio: Size = 0,
    *,
    levels: Array,
    aligned: bool = True,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: npt.DTypeLike = np.float64,
) -> Floats:
    """As :func:`roipool.multilevel_roi_align`, slowly: `roi_align` of every map, for its boxes."""
    table = _table(rois, batch_indices, len(np.asarray(features[0])))
    options: dict[str, Any] = {
        "aligned": aligned,
        "layout": layout,
        "coordinate_dtype": coordinate_dtype,
    }
    every: list[Floats] = [
        np.asarray(roi_align(image, table, output_size, scale, sampling_ratio, **options))
        for image, scale in zip(features, spatial_scales, strict=True)
    ]
    return pooled_by_level(levels, every)


def multilevel_roi_align_backward(
    grad_output: Array,
    rois: Rois,
    input_shapes: Sequence[Sequence[int]],
    spatial_scales: Sequence[float],
    sampling_ratio: Size = 0,
    *,
    levels: Array,
    aligned: bool = True,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: npt.DTypeLike = np.float64,
) -> list[Floats]:
    """As :func:`roipool.multilevel_roi_align_backward`, slowly: a gradient for each of the maps."""

    def one_map(level: int, gradient: Array, boxes: Array) -> Floats:
        return roi_align_backward(
            gradient,
            boxes,
            input_shapes[level],
            spatial_scales[level],
            sampling_ratio,
            aligned=aligned,
            layout=layout,
            coordinate_dtype=coordinate_dtype,
        )

    table = _table(rois, batch_indices, input_shapes[0][0])
    return gradients_by_level(levels, grad_output, table, len(input_shapes), one_map)


def multilevel_roi_align_backward_rois(
    grad_output: Array,
    features: Sequence[Array],
    rois: Rois,
    spatial_scales: Sequence[float],
    sampling_ratio: Size = 0,
    *,
    levels: Array,
    aligned: bool = True,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: npt.DTypeLike = np.float64,
) -> Floats:
    """As :func:`roipool.multilevel_roi_align_backward_rois`, slowly: levels count as constant."""

    def one_map(level: int, gradient: Array, boxes: Array) -> Floats:
        return roi_align_backward_rois(
            gradient,
            features[level],
            boxes,
            spatial_scales[level],
            sampling_ratio,
            aligned=aligned,
            layout=layout,
            coordinate_dtype=coordinate_dtype,
        )

    table = _table(rois, batch_indices, len(np.asarray(features[0])))
    return box_gradient_by_level(levels, grad_output, table, len(features), one_map)


def multilevel_roi_pool(
    features: Sequence[Array],
    rois: Rois,
    output_size: Size,
    spatial_scales: Sequence[float],
    *,
    levels: Array,
    coordinate_dtype: npt.DTypeLike = np.float64,
) -> tuple[Floats, Integers]:
    """`roi_pool` of every map, for its boxes: values and argmax, of no map 0 and -1."""
    every = [
        roi_pool(
            image,
            rois,
            output_size,
            scale,
            return_argmax=True,
            coordinate_dtype=coordinate_dtype,
        )
        for image, scale in zip(features, spatial_scales, strict=True)
    ]
    pooled = np.zeros(np.shape(every[0][0]))
    argmax = np.full(pooled.shape, -1, np.int64)
    for level, (values, numbers) in enumerate(every):
        own = np.asarray(levels) == level
        pooled[own], argmax[own] = values[own], numbers[own]
    return pooled, argmax


def multilevel_roi_pool_backward(
    grad_output: Array,
    argmax: Array,
    rois: Rois,
    input_shapes: Sequence[Sequence[int]],
    *,
    levels: Array,
) -> list[Floats]:
    """As its backward: a gradient for each of the maps."""
    table, gradient = _table(rois, None, input_shapes[0][0]), np.asarray(grad_output)
    owned = [np.asarray(levels) == level for level in range(len(input_shapes))]
    return [
        roi_pool_backward(gradient[own], np.asarray(argmax)[own], table[own], shape)
        for own, shape in zip(owned, input_shapes, strict=True)
    ]


def _table(rois: Rois, batch_indices: Array | None, images: int) -> Floats:
    """Boxes of any form as rows batch index, x1, y1, x2, y2."""
    rows = [(float(n), *box) for n, box in as_boxes(rois, batch_indices, images)]
    return np.array(rows, np.float64).reshape(-1, 5)
