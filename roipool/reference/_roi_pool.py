"""ROI pooling: the maximum of whole pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Floats,
    Integers,
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
from roipool.reference._interpolation import _round_half_away, _whole_pixels
from roipool.reference._loops import EMPTY, Bin, _maximum, _whole

LARGEST_FLOAT64 = float(np.finfo(np.float64).max)


class PoolRules(NamedTuple):
    """What implementations of ROI pooling may get wrong, each rule apart: Caffe's.

    Verification replaces one to learn whether it is what an implementation does otherwise.

    Attributes
    ----------
    round_corner : callable
        A box's corner to a pixel.
    extra, shortest : int
        Pixels that a side has beyond the difference of its ends, and that it has at least: the
        last row and column belong to the box as Caffe defines it, not as Chainer does.
    first, last : callable
        From a bin's edges to pixels.
    cut : int
        How many of the map's last rows and columns no bin reaches.
    pooled : callable
        From a bin to the one whose pixels are maximised, or averaged over its grid.
    """

    round_corner: Callable[[Any], int] = _round_half_away
    extra: int = 1
    shortest: int = 1
    first: Callable[[Any], int] = math.floor
    last: Callable[[Any], int] = math.ceil
    cut: int = 0
    pooled: Callable[[Bin], Bin] = _whole


CAFFE = PoolRules()


def _pool_run(
    first: int, last: int, p: int, bins: int, size: int, real: Real, rules: PoolRules = CAFFE
) -> range:
    """The pixels of bin `p` on one side: floor of its start to ceil of its end, cut at the map.

    There are none where the length of the side is too large for the coordinate type.
    """
    length = max(last - first + rules.extra, rules.shortest)
    bin_size = real(float(length) if length <= LARGEST_FLOAT64 else math.inf) / real(bins)
    if not np.isfinite(bin_size):
        return range(0)
    start, end = real(p) * bin_size, real(p + 1) * bin_size
    low = rules.first(start) + first
    high = rules.last(end) + first if np.isfinite(end) else size
    size -= rules.cut
    return range(min(max(low, 0), size), min(max(high, 0), size))


def _pool_bin(
    box: Box,
    ph: int,
    pw: int,
    *,
    bins: Pair,
    size: Pair,
    scale: float,
    real: Real,
    edge_real: Real,
    rules: PoolRules,
) -> Bin:
    """Both corners are rounded to pixels; the edges of bins are computed in `edge_real`."""
    scaled = [real(coordinate) * real(scale) for coordinate in box]
    if not all(np.isfinite(coordinate) for coordinate in scaled):
        return EMPTY
    x1, y1, x2, y2 = (rules.round_corner(coordinate) for coordinate in scaled)
    rows = _pool_run(y1, y2, ph, bins[0], size[0], edge_real, rules)
    columns = _pool_run(x1, x2, pw, bins[1], size[1], edge_real, rules)
    return rules.pooled(_whole_pixels(rows, columns, size[1]))


def roi_pool(
    features: Array,
    rois: Rois,
    output_size: Size,
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    return_argmax: bool = False,
    coordinate_dtype: DType = np.float64,
    rules: PoolRules = CAFFE,
) -> Floats | tuple[Floats, Integers]:
    """Maximum of the pixels in every bin.

    Corners are rounded, halves away from zero, and belong to the box; a reversed box is one pixel;
    neighbouring bins may share a pixel. An empty bin is 0, and so is every bin of a box that is not
    finite. Source: Girshick, "Fast R-CNN", 2015, as Caffe, torchvision and MXNet define it.

    Parameters
    ----------
    features, rois, output_size, spatial_scale, batch_indices, layout, coordinate_dtype
        See `roipool.reference`.
    return_argmax : bool
        Also return where each maximum is.
    rules : PoolRules
        By default Caffe's.

    Returns
    -------
    output : float64
        The maxima; -inf for a bin that holds nothing above -inf.
    argmax : int64
        ``h * W + w`` of the first maximum, -1 where there is none; only with `return_argmax`.

    Raises
    ------
    ValueError
        If `rois` has none of its three forms or names an image that does not exist, or if
        `layout` is unknown.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> roi_pool(features, [[0, 1, 1, 3, 3]], 2).tolist()
    [[[[13.0, 14.0], [18.0, 19.0]]]]
    """
    planes, bins = _to_nchw(features, layout), _pair(output_size)
    size, real = _pair(planes.shape[2:]), _real(coordinate_dtype)
    definition = partial(
        _pool_bin,
        bins=bins,
        size=size,
        scale=spatial_scale,
        real=real,
        edge_real=real,
        rules=rules,
    )
    maxima = _maximum(planes, _boxes(rois, batch_indices, len(planes)), bins, definition)
    output, argmax = _from_nchw(maxima.value, layout), _from_nchw(maxima.number, layout)
    return (output, argmax) if return_argmax else output


def roi_pool_backward(
    grad_output: Array,
    argmax: Array,
    rois: Rois,
    input_shape: Sequence[int],
    *,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
) -> Floats:
    """Gradient of `roi_pool` for the features.

    Each bin's gradient goes to the pixel that was its maximum, also in a reversed box. Source: the
    backward pass of torchvision's roi_pool. (Caffe's gives a reversed box none.)

    Parameters
    ----------
    grad_output, input_shape, batch_indices, layout
        See `roipool.reference`.
    argmax : array of integers
        As `roi_pool` returned it.
    rois
        See `roipool.reference`; of a box only its image matters.

    Returns
    -------
    grad : float64
        Of shape `input_shape`.

    Raises
    ------
    ValueError
        If `rois` has none of its three forms or names an image that does not exist, or if
        `layout` is unknown.

    Examples
    --------
    >>> roi_pool_backward([[[[0.5]]]], [[[[3]]]], [[0, 0, 0, 1, 1]], (1, 1, 2, 2)).tolist()
    [[[[0.0, 0.0], [0.0, 0.5]]]]
    """
    shape, upstream = _shape_nchw(input_shape, layout), _to_nchw(grad_output, layout)
    indices = _to_nchw(argmax, layout).astype(np.int64)
    grad = np.zeros(shape)
    for k, (n, _) in enumerate(_boxes(rois, batch_indices, shape[0])):
        for c, ph, pw in np.argwhere(indices[k] >= 0):
            y, x = divmod(int(indices[k, c, ph, pw]), shape[3])
            grad[n, c, y, x] += upstream[k, c, ph, pw]
    return _from_nchw(grad, layout)
