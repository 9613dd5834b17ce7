"""Precise ROI pooling: the mean of the bilinearly interpolated map over every bin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Floats,
    Pair,
    Real,
    Rois,
    Size,
    _boxes,
    _from_nchw,
    _pair,
    _real,
    _shape_nchw,
    _to_nchw,
)
from roipool.reference._loops import (
    EMPTY,
    Bin,
    Definition,
    Pixel,
    Sample,
    _average,
    _average_backward,
    _every_bin,
    _slope,
)

Edges = tuple[Fraction, Fraction]  # exact: short bins lose no digits


@lru_cache(maxsize=1024)  # bins of a row share their rows
def _edges(first: float, last: float, p: int, bins: int, scale: float, real: Real) -> Edges | None:
    """The two edges of a bin in map pixels; None for a side that has no length, or no end."""
    with np.errstate(over="ignore", invalid="ignore"):
        start = real(first) * real(scale)
        length = (real(last) * real(scale) - start) / real(bins)
        if not (np.isfinite(start) and np.isfinite(length) and length > 0):
            return None
        low, high = start + real(p) * length, start + real(p + 1) * length
        return Fraction(float(low)), Fraction(float(high))


def _hat(distance: Fraction) -> Fraction:
    """What a pixel contributes to the surface at some distance from it along an axis."""
    return max(1 - abs(distance), Fraction(0))


def _hat_up_to(distance: Fraction) -> Fraction:
    """The integral of that from the left up to a distance."""
    if distance <= 0:
        return _hat(distance) ** 2 / 2
    return 1 - _hat(distance) ** 2 / 2


@lru_cache(maxsize=1024)
def _means(edges: Edges, size: int) -> dict[int, Fraction]:
    """For every pixel near a bin its mean contribution; at a point, for edges that are one."""
    low, high = edges
    near = range(max(math.floor(low), 0), min(math.ceil(high) + 1, size))
    if not high > low:
        return {i: _hat(low - i) for i in near}
    return {i: (_hat_up_to(high - i) - _hat_up_to(low - i)) / (high - low) for i in near}


@lru_cache(maxsize=1024)
def _slopes(edges: Edges, size: int) -> tuple[dict[int, Fraction], dict[int, Fraction]]:
    """The derivatives of those means by the lower and by the upper edge."""
    (low, high), means = edges, _means(edges, size)
    if not high > low:
        return {}, {}
    length = high - low
    return (
        {i: (mean - _hat(low - i)) / length for i, mean in means.items()},
        {i: (_hat(high - i) - mean) / length for i, mean in means.items()},
    )


def _products(rows: dict[int, Fraction], columns: dict[int, Fraction]) -> list[Pixel]:
    return [
        (y, x, float(down * across)) for y, down in rows.items() for x, across in columns.items()
    ]


def _precise(bins: Pair, size: Sequence[int], scale: float, dtype: DType) -> Definition:
    """The definition: each bin is one sample, of all the pixels that contribute to it."""
    (height, width), real = _pair(size), _real(dtype)

    def definition(box: Box, ph: int, pw: int) -> Bin:
        rows = _edges(box[1], box[3], ph, bins[0], scale, real)
        columns = _edges(box[0], box[2], pw, bins[1], scale, real)
        if rows is None or columns is None:
            return EMPTY
        pixels = _products(_means(rows, height), _means(columns, width))
        return Bin([Sample(0, float(rows[0]), float(columns[0]), pixels)], (1, 1))

    return definition


def precise_roi_pool(
    features: Array,
    rois: Rois,
    output_size: Size,
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """Integral of the interpolated map over every bin, divided by the bin's area.

    Between pixels the map is bilinear; it fades to 0 within one pixel beyond the outermost ones. A
    box without area is 0.

    Parameters
    ----------
    features, rois, output_size, spatial_scale, batch_indices, layout, coordinate_dtype
        See `roipool.reference`.

    Returns
    -------
    ndarray of float64
        Pooled values.

    Raises
    ------
    ValueError
        If a box names an image that does not exist.

    Notes
    -----
    Source: Jiang et al., "Acquisition of Localization Confidence for Accurate Object Detection",
    2018, equation 3.

    Examples
    --------
    >>> features = np.arange(25.0).reshape(1, 1, 5, 5)
    >>> precise_roi_pool(features, [[0, 1, 1, 3, 3]], 2).tolist()
    [[[[9.0, 10.0], [14.0, 15.0]]]]
    """
    planes, bins = _to_nchw(features, layout), _pair(output_size)
    definition = _precise(bins, planes.shape[2:], spatial_scale, coordinate_dtype)
    boxes = _boxes(rois, batch_indices, len(planes))
    return _from_nchw(_average(planes, boxes, bins, definition), layout)


def precise_roi_pool_backward(
    grad_output: Array,
    rois: Rois,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """Transpose of `precise_roi_pool`.

    Parameters
    ----------
    grad_output, rois, input_shape, spatial_scale, batch_indices, layout, coordinate_dtype
        See `roipool.reference`.

    Returns
    -------
    ndarray of float64
        Gradient of the features.

    Raises
    ------
    ValueError
        If a box names an image that does not exist.

    Notes
    -----
    Source: the derivative of the forward.

    Examples
    --------
    >>> precise_roi_pool_backward([[[[1.0]]]], [[0, 0, 0, 1, 1]], (1, 1, 2, 3)).tolist()
    [[[[0.25, 0.25, 0.0], [0.25, 0.25, 0.0]]]]
    """
    upstream, shape = _to_nchw(grad_output, layout), _shape_nchw(input_shape, layout)
    definition = _precise(_pair(upstream.shape[2:]), shape[2:], spatial_scale, coordinate_dtype)
    boxes = _boxes(rois, batch_indices, shape[0])
    return _from_nchw(_average_backward(upstream, boxes, shape, definition), layout)


def precise_roi_pool_backward_rois(
    grad_output: Array,
    features: Array,
    rois: Rois,
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """Derivative of `precise_roi_pool` by the boxes.

    Parameters
    ----------
    grad_output, features, rois, spatial_scale, batch_indices, layout, coordinate_dtype
        See `roipool.reference`.

    Returns
    -------
    ndarray of float64
        Shape (K, 4): for x1, y1, x2, y2.

    Raises
    ------
    ValueError
        If a box names an image that does not exist.

    Notes
    -----
    Source: the paper's equation 4, by both edges of each bin.

    Examples
    --------
    >>> features = np.tile(np.arange(5.0), (1, 1, 5, 1))
    >>> precise_roi_pool_backward_rois([[[[1.0]]]], features, [[0, 1, 1, 3, 3]]).tolist()
    [[0.5, 0.0, 0.5, 0.0]]
    """
    planes, upstream = _to_nchw(features, layout), _to_nchw(grad_output, layout)
    bins, (height, width) = _pair(upstream.shape[2:]), _pair(planes.shape[2:])
    boxes = _boxes(rois, batch_indices, len(planes))
    definition = _precise(bins, (height, width), spatial_scale, coordinate_dtype)
    real = _real(coordinate_dtype)
    scale = float(real(spatial_scale))
    grad = np.zeros((len(boxes), 4))
    for k, n, ph, pw, found in _every_bin(boxes, bins, definition):
        if not found.samples:
            continue
        x1, y1, x2, y2 = boxes[k][1]
        rows = _edges(y1, y2, ph, bins[0], spatial_scale, real)
        columns = _edges(x1, x2, pw, bins[1], spatial_scale, real)
        assert rows is not None
        assert columns is not None
        down, across = _means(rows, height), _means(columns, width)
        step = upstream[k, :, ph, pw] * scale
        for edge, slopes in enumerate(_slopes(columns, width)):
            slope, share = _slope(step, planes[n], _products(down, slopes)), (pw + edge) / bins[1]
            grad[k] += slope * np.array([1 - share, 0, share, 0])
        for edge, slopes in enumerate(_slopes(rows, height)):
            slope, share = _slope(step, planes[n], _products(slopes, across)), (ph + edge) / bins[0]
            grad[k] += slope * np.array([0, 1 - share, 0, share])
    return grad
