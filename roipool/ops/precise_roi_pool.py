"""Precise ROI pooling: the mean of the interpolated map over each bin, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from roipool import _arguments as check
from roipool._definitions import Definition
from roipool._front_ends import by_front_end
from roipool._layout import Layout
from roipool._pooling import Call
from roipool._types import AnyArray, ArrayT, Boxes, Numbers


def definition(spatial_scale: float | Sequence[float]) -> Definition:
    """Return the definition with this option, checked."""
    return Definition("precise_roi_pool", check.map_scale("spatial_scale", spatial_scale))


@by_front_end
def precise_roi_pool(
    features: ArrayT,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    *,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Pool each box to a fixed grid by the exact mean of the interpolated map over each bin.

    The map is interpolated bilinearly between its cells, whose centres are at whole coordinates,
    and falls to 0 within one cell outside the map. A bin is the integral of this surface over the
    bin, divided by the area of the bin. Nothing is rounded and there are no samples, so the result
    is a smooth function of the box.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns), or (K, rows, columns, C) for NHWC, in the features' dtype.
        Boxes without area, reversed boxes, and boxes with NaN or infinite coordinates are 0.

    See Also
    --------
    precise_roi_pool_backward, precise_roi_pool_backward_rois : The gradients.
    roi_align : The average of a few samples, which is faster.

    Notes
    -----
    Definition: Jiang et al., "Acquisition of Localization Confidence for Accurate Object Detection"
    (2018). float16 and bfloat16 features are computed in float32 and rounded once.

    Examples
    --------
    On a map with a constant slope, the mean of a bin is the value at its centre:

    >>> import numpy as np, roipool
    >>> features = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> roipool.precise_roi_pool(features, [[0, 1, 1, 3, 3]], output_size=2)
    array([[[[ 9., 10.],
             [14., 15.]]]], dtype=float32)
    """
    with Call(features=features, rois=rois, batch_indices=batch_indices, out=out) as call:
        placed = definition(spatial_scale)
        return call.averages(call.request(placed, output_size, layout))


@by_front_end
def precise_roi_pool_backward(
    grad_output: ArrayT,
    rois: Boxes,
    input_shape: Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    *,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Return the gradient of :func:`precise_roi_pool` with respect to the features.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> grad_output = np.ones((1, 1, 1, 1), np.float32)
    >>> roipool.precise_roi_pool_backward(grad_output, [[0, 0, 0, 1, 1]], (1, 1, 2, 3))
    array([[[[0.25, 0.25, 0.  ],
             [0.25, 0.25, 0.  ]]]], dtype=float32)
    """
    with Call(grad_output=grad_output, rois=rois, batch_indices=batch_indices, out=out) as call:
        checked = call.checked_backward(definition(spatial_scale), input_shape, layout)
        gradient, regions, pooling, shape = checked
        return call.average_backward(gradient, regions, pooling, shape)


@overload
def precise_roi_pool_backward_rois(
    grad_output: NDArray[Any],
    features: AnyArray,
    rois: Boxes,
    spatial_scale: float | Sequence[float] = ...,
    *,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
) -> NDArray[np.floating[Any]]: ...
@overload
def precise_roi_pool_backward_rois(
    grad_output: ArrayT,
    features: AnyArray,
    rois: Boxes,
    spatial_scale: float | Sequence[float] = ...,
    *,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
) -> ArrayT: ...
@by_front_end
def precise_roi_pool_backward_rois(
    grad_output: ArrayT,
    features: AnyArray,
    rois: Boxes,
    spatial_scale: float | Sequence[float] = 1.0,
    *,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
) -> ArrayT:
    """Return the gradient of :func:`precise_roi_pool` with respect to the boxes.

    It is the exact derivative of the forward, wherever that is differentiable.

    Examples
    --------
    On a map that rises by 1 per column, moving the box to the right by 1 adds 1:

    >>> import numpy as np, roipool
    >>> features = np.tile(np.arange(5.0), (1, 1, 5, 1))
    >>> roipool.precise_roi_pool_backward_rois(np.ones((1, 1, 1, 1)), features, [[0, 1, 1, 3, 3]])
    array([[0.5, 0. , 0.5, 0. ]])
    """
    with Call(
        grad_output=grad_output, features=features, rois=rois, batch_indices=batch_indices
    ) as call:
        checked = call.checked_backward_boxes(definition(spatial_scale), layout)
        return call.average_backward_boxes(*checked)
