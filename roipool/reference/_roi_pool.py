"""ROI pooling: the maximum of whole cells, also as mmcv defines it; and their mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from roipool.reference._bins import define
from roipool.reference._inputs import (
    Array,
    DType,
    Floats,
    Integers,
    Rois,
    Size,
    as_pair,
    as_real,
    from_nchw,
    shape_nchw,
    to_nchw,
)
from roipool.reference._loops import LOWEST_FLOAT32, Averages, Maxima
from roipool.reference._rules import (
    MMCV_ROI_POOL,
    PS_ROI_POOL,
    ROI_AVERAGE_POOL,
    ROI_POOL,
    Rules,
)


def roi_pool(
    features: Array,
    rois: Rois,
    output_size: Size,
    spatial_scale: float = 1.0,
    *,
    group_size: Size = 1,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    return_argmax: bool = False,
    coordinate_dtype: DType = np.float64,
    rules: Rules = ROI_POOL,
) -> Floats | tuple[Floats, Integers]:
    """As :func:`roipool.roi_pool`, slowly: every cell by itself.

    A bin that holds nothing above -inf is -inf, with no argmax. There may be groups of bins: see
    :func:`roipool.ps_roi_pool`.
    """
    definition = define(rules, spatial_scale, coordinate_dtype=coordinate_dtype)
    maxima = Maxima(definition, rois, batch_indices, layout, group_size=as_pair(group_size))
    found = maxima.forward(features, output_size)
    return (found.value, found.number) if return_argmax else found.value


def roi_pool_backward(
    grad_output: Array,
    argmax: Array,
    rois: Rois,
    input_shape: Sequence[int],
    *,
    group_size: Size = 1,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
) -> Floats:
    """As :func:`roipool.roi_pool_backward`, slowly: each gradient to the cell that was the maximum.

    That is so in a reversed box, too. (Caffe's gives such a box none.)
    """
    shape, upstream = shape_nchw(input_shape, layout), to_nchw(grad_output, layout)
    indices, bins = to_nchw(argmax, layout).astype(np.int64), as_pair(upstream.shape[2:])
    maxima = Maxima(define(ROI_POOL), rois, batch_indices, layout, group_size=as_pair(group_size))
    grad = np.zeros(shape)
    for k, (n, _) in enumerate(maxima.boxes(shape[0])):
        for c, ph, pw in np.argwhere(indices[k] >= 0).tolist():
            y, x = divmod(int(indices[k, c, ph, pw]), shape[3])
            own = range(shape[1])[maxima.channels_of(ph, pw, bins)]
            grad[n, own[c], y, x] += upstream[k, c, ph, pw]
    return from_nchw(grad, layout)


@np.errstate(over="ignore", invalid="ignore")
def mmcv_roi_pool(
    features: Array,
    rois: Array,
    output_size: Size,
    spatial_scale: float = 1.0,
    *,
    coordinate_dtype: DType = np.float64,
) -> tuple[Floats, Integers]:
    """As :func:`roipool.compat.mmcv.roi_pool`, slowly: values and argmax.

    The argmax is 0 in a box of no or negative size, which mmcv skips. `rois` is (K, 5).
    """
    real = as_real(coordinate_dtype)
    maxima = Maxima(define(MMCV_ROI_POOL, spatial_scale, coordinate_dtype=coordinate_dtype), rois)
    found = maxima.forward(features, output_size, LOWEST_FLOAT32)

    def is_skipped(first: float, last: float) -> bool:
        start = real(first) * real(spatial_scale)
        return bool((real(last) + real(1)) * real(spatial_scale) - start <= 0)

    for k, (_, (x1, y1, x2, y2)) in enumerate(maxima.boxes(len(np.asarray(features)))):
        if is_skipped(x1, x2) or is_skipped(y1, y2):
            found.number[k] = 0
    return found.value, found.number


# ---- The mean


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
    rules: Rules = ROI_AVERAGE_POOL,
) -> Floats:
    """As :func:`roipool.roi_average_pool`, slowly: every cell by itself.

    The edges of bins are computed in `edge_dtype`, by default `coordinate_dtype`.
    """
    definition = define(rules, spatial_scale, 0, coordinate_dtype, edge_dtype)
    return Averages(definition, rois, batch_indices, layout).forward(features, output_size)


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
    rules: Rules = ROI_AVERAGE_POOL,
) -> Floats:
    """As :func:`roipool.roi_average_pool_backward`, slowly: the transpose, cell by cell.

    `edge_dtype` is as for `roi_average_pool`.
    """
    definition = define(rules, spatial_scale, 0, coordinate_dtype, edge_dtype)
    return Averages(definition, rois, batch_indices, layout).backward(grad_output, input_shape)


# ---- The mean, of channels that belong to the bin


def ps_roi_pool(
    features: Array,
    rois: Rois,
    output_size: Size,
    spatial_scale: float = 1.0,
    *,
    group_size: Size = 0,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    rules: Rules = PS_ROI_POOL,
) -> Floats:
    """As :func:`roipool.ps_roi_pool`, slowly: every cell by itself."""
    definition = define(rules, spatial_scale, coordinate_dtype=coordinate_dtype)
    averages = Averages(definition, rois, batch_indices, layout, group_size=as_pair(group_size))
    return averages.forward(features, output_size)


def ps_roi_pool_backward(
    grad_output: Array,
    rois: Rois,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    group_size: Size = 0,
    batch_indices: Array | None = None,
    layout: str = "NCHW",
    coordinate_dtype: DType = np.float64,
    rules: Rules = PS_ROI_POOL,
) -> Floats:
    """As :func:`roipool.ps_roi_pool_backward`, slowly: the transpose, cell by cell."""
    definition = define(rules, spatial_scale, coordinate_dtype=coordinate_dtype)
    averages = Averages(definition, rois, batch_indices, layout, group_size=as_pair(group_size))
    return averages.backward(grad_output, input_shape)
