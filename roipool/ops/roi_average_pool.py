"""ROI average pooling: the mean of the whole cells of each bin."""

from __future__ import annotations

from collections.abc import Sequence

from roipool import _arguments as check
from roipool._definitions import Definition
from roipool._front_ends import by_front_end
from roipool._layout import Layout
from roipool._pooling import Call
from roipool._types import ArrayT, Boxes, Numbers


def definition(spatial_scale: float | Sequence[float]) -> Definition:
    """Return the definition with this option, checked."""
    return Definition("roi_average_pool", check.map_scale("spatial_scale", spatial_scale))


@by_front_end
def roi_average_pool(
    features: ArrayT,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    *,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Pool each box to a fixed grid by the mean of whole map cells.

    Box corners are scaled and rounded to map cells (half away from zero). Unlike in
    :func:`roi_pool`, the last row and column do not belong to the box. It is at least one cell
    long. The edges of bins are rounded outwards, so neighbouring bins may share cells.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns), or (K, rows, columns, C) for NHWC, in the features' dtype.
        Bins without cells, and boxes with NaN or infinite coordinates, are 0.

    See Also
    --------
    roi_average_pool_backward : The gradient.
    roi_pool : The maximum of whole cells.
    roi_align : Samples instead of whole cells, without rounding.
    roipool.compat.chainer.roi_average_pooling_2d : The function with Chainer's results.

    Notes
    -----
    Definition: Chainer's ``roi_average_pooling_2d`` with the rounding of its GPU kernel, which
    computes bin edges in the dtype of the maps (float32 for 16-bit maps). Chainer's CPU code rounds
    boxes half to even and computes bin edges in float64; see ``roipool.compat.chainer``.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> features = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> roipool.roi_average_pool(features, [[0, 0, 0, 4, 4]], output_size=2)
    array([[[[ 4.,  6.],
             [14., 16.]]]], dtype=float32)
    """
    with Call(features=features, rois=rois, batch_indices=batch_indices, out=out) as call:
        placed = definition(spatial_scale)
        return call.averages(call.request(placed, output_size, layout))


@by_front_end
def roi_average_pool_backward(
    grad_output: ArrayT,
    rois: Boxes,
    input_shape: Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    *,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Return the gradient of :func:`roi_average_pool` with respect to the features.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> grad_output = np.ones((1, 1, 1, 1), np.float32)
    >>> roipool.roi_average_pool_backward(grad_output, [[0, 0, 0, 2, 2]], (1, 1, 2, 3))
    array([[[[0.25, 0.25, 0.  ],
             [0.25, 0.25, 0.  ]]]], dtype=float32)
    """
    with Call(grad_output=grad_output, rois=rois, batch_indices=batch_indices, out=out) as call:
        checked = call.checked_backward(definition(spatial_scale), input_shape, layout)
        gradient, regions, pooling, shape = checked
        return call.average_backward(gradient, regions, pooling, shape)
