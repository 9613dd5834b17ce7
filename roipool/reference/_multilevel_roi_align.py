"""ROI align over a pyramid's maps: each box from the map of its level, one level at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from roipool.reference._inputs import Array, Floats, Integers, Rois, Size, as_boxes
from roipool.reference._roi_align import roi_align, roi_align_backward, roi_align_backward_rois


def assign_levels(
    rois: Array,
    min_level: int,
    max_level: int,
    canonical_size: float = 224.0,
    canonical_level: int = 4,
) -> Integers:
    """The index of each box's map in a pyramid, by the box's size: Lin et al. (2017), equation 1.

    Parameters
    ----------
    rois : array_like, (K, 5) or (K, 4)
        Boxes in image pixels: batch index, x1, y1, x2, y2; or without the first.
    min_level, max_level : int
        Levels of the first and the last map, from -100 to 100.
    canonical_size : float
        Side of a square box that belongs to `canonical_level`, in image pixels; from 2**-100 to
        2**100.
    canonical_level : int
        Its level, from -100 to 100.

    Returns
    -------
    ndarray of int64, (K,)
        From 0 to ``max_level - min_level``.

    Examples
    --------
    >>> assign_levels([[0, 0, 0, 448, 224], [0, 0, 0, 448, 448], [0, 9, 9, 3, 3]], 2, 5).tolist()
    [2, 3, 0]
    """
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
    """Averages of bilinear samples, each box's from the map that `levels` names.

    Parameters
    ----------
    features : sequence of array_like
        The maps, (N, C, H, W) or (N, H, W, C) each.
    rois, output_size, sampling_ratio, aligned, batch_indices, layout, coordinate_dtype
        As for `roi_align`.
    spatial_scales : sequence of float
        Map pixels per image pixel of each map.
    levels : array_like of int, (K,)
        The index of each box's map.

    Returns
    -------
    ndarray of float64
        Like `roi_align`'s.

    Examples
    --------
    >>> maps = np.ones((1, 1, 4, 4)), np.full((1, 1, 2, 2), 2.0)
    >>> boxes = [[0, 0, 0, 2, 2], [0, 0, 0, 4, 4]]
    >>> multilevel_roi_align(maps, boxes, 1, (1, 0.5), levels=[0, 1]).ravel().tolist()
    [1.0, 2.0]
    """
    table = _table(rois, batch_indices, len(np.asarray(features[0])))
    pooled: Floats | None = None
    for level, (image, scale) in enumerate(zip(features, spatial_scales, strict=True)):
        every = roi_align(
            image, table, output_size, scale, sampling_ratio, aligned=aligned, layout=layout,
            coordinate_dtype=coordinate_dtype,
        )  # fmt: skip
        pooled = np.zeros_like(every) if pooled is None else pooled
        own = np.asarray(levels) == level
        pooled[own] = every[own]
    assert pooled is not None
    return pooled


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
    """Gradients of `multilevel_roi_align` for each of the maps.

    Parameters
    ----------
    grad_output : array_like
        Gradient of the pooled values.
    rois, sampling_ratio, aligned, batch_indices, layout, coordinate_dtype
        As for `roi_align`.
    input_shapes : sequence of sequence of int
        Shapes of the maps.
    spatial_scales, levels
        As for `multilevel_roi_align`.

    Returns
    -------
    list of ndarray of float64
        Of the maps' shapes.

    Examples
    --------
    >>> shapes = (1, 1, 1, 1), (1, 1, 1, 1)
    >>> grads = multilevel_roi_align_backward(
    ...     [[[[1.0]]]], [[0, 0, 0, 1, 1]], shapes, (1, 0.5), levels=[1]
    ... )
    >>> [grad.item() for grad in grads]
    [0.0, 1.0]
    """
    table, gradient = _table(rois, batch_indices, input_shapes[0][0]), np.asarray(grad_output)
    grads = []
    for level, (shape, scale) in enumerate(zip(input_shapes, spatial_scales, strict=True)):
        own = np.asarray(levels) == level
        grads.append(
            roi_align_backward(
                gradient[own], table[own], shape, scale, sampling_ratio, aligned=aligned,
                layout=layout, coordinate_dtype=coordinate_dtype,
            )
        )  # fmt: skip
    return grads


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
    """Gradient of `multilevel_roi_align` for the boxes; their levels count as constant.

    Parameters
    ----------
    grad_output, features, rois, spatial_scales, sampling_ratio, levels, aligned, batch_indices, \
layout, coordinate_dtype
        As for `multilevel_roi_align` and its gradient.

    Returns
    -------
    ndarray of float64, (K, 4)
        By x1, y1, x2, y2 in image pixels.

    Examples
    --------
    >>> maps = [np.tile(np.arange(5.0), (1, 1, 5, 1)), np.zeros((1, 1, 3, 3))]
    >>> box, grad_output = [[0, 1, 1, 3, 3]], [[[[1.0]]]]
    >>> multilevel_roi_align_backward_rois(
    ...     grad_output, maps, box, (1, 0.5), levels=[0]
    ... ).tolist()
    [[0.5, 0.0, 0.5, 0.0]]
    """
    table, gradient = (
        _table(rois, batch_indices, len(np.asarray(features[0]))),
        np.asarray(grad_output),
    )
    grad = np.zeros((len(table), 4))
    for level, (image, scale) in enumerate(zip(features, spatial_scales, strict=True)):
        own = np.asarray(levels) == level
        grad[own] = roi_align_backward_rois(
            gradient[own], image, table[own], scale, sampling_ratio, aligned=aligned,
            layout=layout, coordinate_dtype=coordinate_dtype,
        )  # fmt: skip
    return grad


def _table(rois: Rois, batch_indices: Array | None, images: int) -> Floats:
    """Boxes of any form as rows batch index, x1, y1, x2, y2."""
    rows = [(float(n), *box) for n, box in as_boxes(rois, batch_indices, images)]
    return np.array(rows, np.float64).reshape(-1, 5)
