"""The first ROI align layers, Caffe's and the older MXNet's: samples one pixel apart.

Features are ``(N, C, H, W)`` and `rois` is ``(K, 5)``.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Floats,
    Integers,
    Pair,
    Real,
    Scalar,
    Size,
    _boxes,
    _pair,
    _real,
    _to_nchw,
)
from roipool.reference._interpolation import Neighbours, _corners, _cut_bin
from roipool.reference._loops import LOWEST_FLOAT32, Bin, Maxima, Sample, _maximum


def _steps(at: Scalar, end: Scalar, real: Real) -> list[Scalar]:
    """Positions from `at` in steps of 1, added up, while below `end`."""
    positions = []
    while at < end:
        positions.append(at)
        at = at + real(1)
    return positions


def _step_neighbours(at: Scalar, doubled: bool, real: Real) -> Neighbours:
    """Floor and ceil of a position with their weights.

    `doubled` weighs both with 1 where they are the same pixel.
    """
    low, high = math.floor(at), math.ceil(at)
    high_weight = real(1) - real(high) + at if doubled else at - real(low)
    return low, high, float(real(1) - at + real(low)), float(high_weight)


def _step_bin(
    box: Box, ph: int, pw: int, *, bins: Pair, size: Pair, scale: float, doubled: bool, real: Real
) -> Bin:
    """The first ROI align layers: samples one pixel apart from the start of the bin.

    Corners off the map are dropped.
    """
    x1, y1, x2, y2 = (real(coordinate) * real(scale) for coordinate in box)
    rows = _steps(*_cut_bin(y1, y2 - y1 + real(1), ph, bins[0], size[0], real), real)
    columns = _steps(*_cut_bin(x1, x2 - x1 + real(1), pw, bins[1], size[1], real), real)
    samples: list[Sample] = []

    def product(down: float, across: float) -> float:
        with np.errstate(under="ignore"):
            return float(real(down) * real(across))

    for y in rows:
        for x in columns:
            low_left, low_right, high_left, high_right = _corners(
                _step_neighbours(y, doubled, real), _step_neighbours(x, doubled, real), product
            )
            pixels = [
                p
                for p in (high_left, high_right, low_left, low_right)
                if p[0] < size[0] and p[1] < size[1]
            ]
            samples.append(Sample(len(samples), float(y), float(x), pixels))
    return Bin(samples, (len(rows), len(columns)))


def _step_align(
    features: Array, rois: Array, bins: Pair, scale: float, doubled: bool, dtype: DType
) -> Maxima:
    planes = _to_nchw(features, "NCHW")
    size, real = _pair(planes.shape[2:]), _real(dtype)
    definition = partial(_step_bin, bins=bins, size=size, scale=scale, doubled=doubled, real=real)
    return _maximum(planes, _boxes(rois, None, len(planes)), bins, definition, LOWEST_FLOAT32)


def caffe_roi_align(
    features: Array,
    rois: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    *,
    coordinate_dtype: DType = np.float64,
) -> tuple[Floats, Integers, Integers]:
    """Maximum of samples one pixel apart, as the ROIAlign layer for Caffe computes it.

    Where a coordinate is an integer, its floor and its ceil are one pixel, counted twice: such
    samples are 2 or 4 times too large. Corners off the map are left out. Bins of a box that is not
    finite are empty. Source: roi_align_layer.cu, the layer's GPU code.

    Parameters
    ----------
    features, rois, output_size, spatial_scale, coordinate_dtype
        See `roipool.reference`; features (N, C, H, W) and rois (K, 5) only.

    Returns
    -------
    output : float64
        The maxima; 0 for an empty bin, the lowest float32 for a bin with nothing above that.
    argmax_x, argmax_y : int64
        The winning sample's coordinates, cut to integers; -1 where there is none.

    Raises
    ------
    ValueError
        If `rois` is not ``(K, 5)``, or names an image that does not exist.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> caffe_roi_align(features, [[0, 1, 1, 3, 3]], 2)[0].tolist()
    [[[[52.0, 29.0], [41.0, 22.0]]]]
    """
    found = _step_align(features, rois, _pair(output_size), spatial_scale, True, coordinate_dtype)
    return found.value, found.x.astype(np.int64), found.y.astype(np.int64)


def mxnet_roi_align(
    features: Array,
    rois: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    *,
    coordinate_dtype: DType = np.float64,
) -> tuple[Floats, Floats, Floats]:
    """Maximum of samples one pixel apart, as the older ROIAlign operator for MXNet computes it.

    The samples of `caffe_roi_align`, bilinear at integers too. A negative batch index makes all
    three results 0. Source: roi_align.cu in the R-CNN example of ElaineBao/mxnet.

    Parameters
    ----------
    features, rois, output_size, spatial_scale, coordinate_dtype
        See `roipool.reference`; features (N, C, H, W) and rois (K, 5) only.

    Returns
    -------
    output : float64
        The maxima; 0 for an empty bin, the lowest float32 for a bin with nothing above that.
    argmax_x, argmax_y : float64
        The winning sample's coordinates; -1 where there is none.

    Raises
    ------
    ValueError
        If `rois` is not ``(K, 5)``, or names an image past the last.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> mxnet_roi_align(features, [[0, 1, 1, 3, 3]], 2)[0].tolist()
    [[[[13.0, 14.5], [20.5, 22.0]]]]
    """
    table = np.asarray(rois)
    known = table[:, 0] >= 0
    found = _step_align(
        features, table[known], _pair(output_size), spatial_scale, False, coordinate_dtype
    )
    output, argmax_x, argmax_y = np.zeros((3, len(table), *found.value.shape[1:]))
    output[known], argmax_x[known], argmax_y[known] = found.value, found.x, found.y
    return output, argmax_x, argmax_y
