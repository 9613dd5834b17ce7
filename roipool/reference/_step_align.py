"""The first ROI align layers, Caffe's and the older MXNet's: samples one cell apart.

Features are ``(N, C, H, W)`` and `rois` is ``(K, 5)``.
"""

from __future__ import annotations

import numpy as np

from roipool.reference._bins import define
from roipool.reference._inputs import Array, DType, Floats, Integers, Size
from roipool.reference._loops import LOWEST_FLOAT32, Found, Maxima
from roipool.reference._rules import CAFFE_ROI_ALIGN, MXNET_ROI_ALIGN, Rules


def _step_align(
    features: Array, rois: Array, output_size: Size, scale: float, dtype: DType, rules: Rules
) -> Found:
    maxima = Maxima(define(rules, scale, coordinate_dtype=dtype), rois)
    return maxima.forward(features, output_size, LOWEST_FLOAT32)


def caffe_roi_align(
    features: Array,
    rois: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    *,
    coordinate_dtype: DType = np.float64,
) -> tuple[Floats, Integers, Integers]:
    """As :func:`roipool.compat.caffe.roi_align`, slowly: values, argmax_x, argmax_y.

    A sample on a cell's centre counts it twice on that axis. Source: roi_align_layer.cu.
    """
    found = _step_align(
        features, rois, output_size, spatial_scale, coordinate_dtype, CAFFE_ROI_ALIGN
    )
    return found.value, found.x.astype(np.int64), found.y.astype(np.int64)


def mxnet_roi_align(
    features: Array,
    rois: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    *,
    coordinate_dtype: DType = np.float64,
) -> tuple[Floats, Floats, Floats]:
    """As :func:`roipool.compat.mxnet.ROIAlign`, slowly: values, argmax_x, argmax_y.

    A negative batch index makes all three 0. Source: roi_align.cu in the R-CNN example of
    ElaineBao/mxnet.
    """
    table = np.asarray(rois)
    known = table[:, 0] >= 0
    found = _step_align(
        features, table[known], output_size, spatial_scale, coordinate_dtype, MXNET_ROI_ALIGN
    )
    output, argmax_x, argmax_y = np.zeros((3, len(table), *found.value.shape[1:]))
    output[known], argmax_x[known], argmax_y[known] = found.value, found.x, found.y
    return output, argmax_x, argmax_y
