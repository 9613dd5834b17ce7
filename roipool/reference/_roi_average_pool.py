"""ROI average pooling: the mean of whole pixels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from roipool.reference._inputs import (
    Array,
    DType,
    Floats,
    Pair,
    Rois,
    Size,
    _boxes,
    _from_nchw,
    _pair,
    _real,
    _shape_nchw,
    _to_nchw,
)
from roipool.reference._loops import Definition, _average, _average_backward
from roipool.reference._roi_pool import CAFFE, PoolRules, _pool_bin

CHAINER = CAFFE._replace(extra=0)  # the last row and column do not belong to the box


def _definition(
    bins: Pair,
    size: Sequence[int],
    scale: float,
    coordinate_dtype: DType,
    edge_dtype: DType | None,
    rules: PoolRules,
) -> Definition:
    """The bins of `roi_pool`, by other rules."""
    return partial(
        _pool_bin,
        bins=bins,
        size=_pair(size),
        scale=scale,
        real=_real(coordinate_dtype),
        edge_real=_real(coordinate_dtype if edge_dtype is None else edge_dtype),
        rules=rules,
    )


def roi_average_pool(
    features: Array,
    rois: Rois,
    output_size: Size,
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    edge_dtype: DType | None = None,
    rules: PoolRules = CHAINER,
) -> Floats:
    """Mean of the pixels of every bin; 0 for an empty bin.

    Parameters
    ----------
    features, rois, output_size, spatial_scale, batch_indices, layout, coordinate_dtype
        See `roipool.reference`.
    edge_dtype : dtype, optional
        What the edges of bins are computed in; by default `coordinate_dtype`.
    rules : PoolRules
        By default Chainer's.

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
    Source: Chainer's ``roi_average_pooling_2d`` on a GPU, corners rounded half away from zero. On a
    CPU it computes the edges of bins in float64, for any maps.

    Examples
    --------
    >>> features = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    >>> roi_average_pool(features, [[0, 0, 0, 5, 5]], 2).tolist()
    [[[[7.0, 9.0], [17.0, 19.0]]]]
    """
    planes, bins = _to_nchw(features, layout), _pair(output_size)
    definition = _definition(
        bins, planes.shape[2:], spatial_scale, coordinate_dtype, edge_dtype, rules
    )
    boxes = _boxes(rois, batch_indices, len(planes))
    return _from_nchw(_average(planes, boxes, bins, definition), layout)


def roi_average_pool_backward(
    grad_output: Array,
    rois: Rois,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    edge_dtype: DType | None = None,
    rules: PoolRules = CHAINER,
) -> Floats:
    """Transpose of `roi_average_pool`.

    Parameters
    ----------
    grad_output, rois, input_shape, spatial_scale, batch_indices, layout, coordinate_dtype
        See `roipool.reference`.
    edge_dtype, rules
        As for `roi_average_pool`.

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
    >>> roi_average_pool_backward([[[[1.0]]]], [[0, 0, 0, 2, 2]], (1, 1, 2, 3)).tolist()
    [[[[0.25, 0.25, 0.0], [0.25, 0.25, 0.0]]]]
    """
    upstream, shape = _to_nchw(grad_output, layout), _shape_nchw(input_shape, layout)
    bins = _pair(upstream.shape[2:])
    definition = _definition(bins, shape[2:], spatial_scale, coordinate_dtype, edge_dtype, rules)
    boxes = _boxes(rois, batch_indices, shape[0])
    return _from_nchw(_average_backward(upstream, boxes, shape, definition), layout)
