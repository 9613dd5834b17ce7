"""MXNet's operators as functions of NumPy arrays."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np


def roi_pooling(data: Any, rois: Any, pooled_size: Any, spatial_scale: float) -> Any:
    """Run ROIPooling."""
    arrays = mx.nd.array(data, dtype=data.dtype), mx.nd.array(rois, dtype=rois.dtype)
    pooled = mx.nd.ROIPooling(*arrays, pooled_size=pooled_size, spatial_scale=spatial_scale)
    return pooled.asnumpy()


def _align(data: Any, rois: Any, size: Any, scale: float, ratio: int, aligned: bool) -> Any:
    return mx.nd.contrib.ROIAlign(
        data, mx.nd.array(rois, dtype=rois.dtype), pooled_size=size, spatial_scale=scale,
        sample_ratio=ratio, aligned=aligned,
    )  # fmt: skip


def roi_align(
    data: Any, rois: Any, pooled_size: Any, spatial_scale: float, sample_ratio: int, aligned: bool
) -> Any:
    """Run contrib.ROIAlign."""
    options = pooled_size, spatial_scale, sample_ratio, aligned
    return _align(mx.nd.array(data, dtype=data.dtype), rois, *options).asnumpy()


def roi_align_backward(
    out_grad: Any, rois: Any, data_shape: Any, spatial_scale: float, sample_ratio: int,
    aligned: bool,
) -> Any:  # fmt: skip
    """Return the gradient of contrib.ROIAlign."""
    data = mx.nd.array(np.zeros(data_shape, out_grad.dtype), dtype=out_grad.dtype)
    data.attach_grad()
    with mx.autograd.record():
        pooled = _align(data, rois, out_grad.shape[2:], spatial_scale, sample_ratio, aligned)
    pooled.backward(mx.nd.array(out_grad, dtype=out_grad.dtype))
    return data.grad.asnumpy()
