"""What mmcv defines in its own way: ROI pooling, and the maximum in ROI align.

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
from roipool.reference._interpolation import _cut_bin, _whole_pixels
from roipool.reference._loops import EMPTY, LOWEST_FLOAT32, Bin, _maximum
from roipool.reference._roi_align import PUBLISHED, AlignRules, _align


def _mmcv_side(first: float, last: float, scale: float, real: Real) -> tuple[Scalar, Scalar]:
    """Start and length of a side in map pixels.

    The side ends one image pixel after the box's coordinate.
    """
    start = real(first) * real(scale)
    return start, (real(last) + real(1)) * real(scale) - start


def _mmcv_pool_bin(
    box: Box, ph: int, pw: int, *, bins: Pair, size: Pair, scale: float, real: Real
) -> Bin:
    """ROI pooling of mmcv: the pixels of the bins of an unrounded box.

    There are none in a box of no or negative size.
    """
    y_start, height = _mmcv_side(box[1], box[3], scale, real)
    x_start, width = _mmcv_side(box[0], box[2], scale, real)
    if height <= 0 or width <= 0:
        return EMPTY
    y_low, y_high = _cut_bin(y_start, height, ph, bins[0], size[0], real)
    x_low, x_high = _cut_bin(x_start, width, pw, bins[1], size[1], real)
    rows = range(math.floor(y_low), math.ceil(y_high))
    columns = range(math.floor(x_low), math.ceil(x_high))
    return _whole_pixels(rows, columns, size[1])


@np.errstate(over="ignore", invalid="ignore")
def mmcv_roi_pool(
    features: Array,
    rois: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    *,
    coordinate_dtype: DType = np.float64,
) -> tuple[Floats, Integers]:
    """Maximum of the pixels in every bin of an unrounded box, as mmcv's RoIPool computes it.

    Source: the roi_pool kernels of mmcv 2.

    Parameters
    ----------
    features, rois, output_size, spatial_scale, coordinate_dtype
        See `roipool.reference`; features (N, C, H, W) and rois (K, 5) only.

    Returns
    -------
    output : float64
        The maxima; 0 for an empty bin, the lowest float32 for a bin with nothing above that.
    argmax : int64
        ``h * W + w``; -1 where there is none, but 0 in a box of no or negative size, which mmcv
        skips.

    Raises
    ------
    ValueError
        If `rois` is not ``(K, 5)``, or names an image that does not exist.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> mmcv_roi_pool(features, [[0, 1, 1, 3, 3]], 2)[0].tolist()
    [[[[13.0, 14.0], [18.0, 19.0]]]]
    """
    planes, bins, real = _to_nchw(features, "NCHW"), _pair(output_size), _real(coordinate_dtype)
    boxes = _boxes(rois, None, len(planes))
    definition = partial(
        _mmcv_pool_bin, bins=bins, size=_pair(planes.shape[2:]), scale=spatial_scale, real=real
    )
    found = _maximum(planes, boxes, bins, definition, LOWEST_FLOAT32)
    for k, (_, (x1, y1, x2, y2)) in enumerate(boxes):
        if (
            _mmcv_side(x1, x2, spatial_scale, real)[1] <= 0
            or _mmcv_side(y1, y2, spatial_scale, real)[1] <= 0
        ):
            found.number[k] = 0
    return found.value, found.number


def mmcv_roi_align_max(
    features: Array,
    rois: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    *,
    aligned: bool = True,
    start: float = -10000.0,
    coordinate_dtype: DType = np.float64,
    rules: AlignRules = PUBLISHED,
) -> tuple[Floats, Floats, Floats]:
    """Maximum of the samples of `roi_align`, as mmcv computes it.

    Samples outside the map may win; an adaptive number of them is computed in float32. A bin
    without samples, or with nothing above `start`, is `start`. Source: the roi_align kernels of
    mmcv 2, with RoIAlign's pool_mode "max".

    Parameters
    ----------
    features, rois, output_size, spatial_scale, coordinate_dtype
        See `roipool.reference`; features (N, C, H, W) and rois (K, 5) only.
    sampling_ratio, aligned, rules
        As for `roi_align`.
    start : float
        First value of the maximum: by default mmcv's on a CPU; on a GPU it is the lowest float32.

    Returns
    -------
    output : float64
        The maxima.
    argmax_y, argmax_x : float64
        The winning sample's coordinates; -1 where there is none.

    Raises
    ------
    ValueError
        If `rois` is not ``(K, 5)``, or names an image that does not exist.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> mmcv_roi_align_max(features, [[0, 1, 1, 3, 3]], 2, sampling_ratio=2)[0].tolist()
    [[[[8.5, 9.5], [13.5, 14.5]]]]
    """
    planes, bins = _to_nchw(features, "NCHW"), _pair(output_size)
    options = spatial_scale, sampling_ratio, aligned
    definition = _align(bins, planes.shape[2:], *options, coordinate_dtype, np.float32, rules)
    found = _maximum(
        planes, _boxes(rois, None, len(planes)), bins, definition, start, scan_all=True
    )
    return found.value, found.y, found.x
