"""Position-sensitive ROI pooling: the mean of whole cells, of a channel that belongs to the bin."""

from __future__ import annotations

from collections.abc import Sequence

from roipool import _arguments as check
from roipool._definitions import Definition
from roipool._front_ends import by_front_end
from roipool._layout import Layout
from roipool._pooling import Call
from roipool._types import ArrayT, Boxes, Numbers


def definition(spatial_scale: float, group_size: int | Sequence[int]) -> Definition:
    """Return the definition with these options, checked."""
    return Definition(
        "ps_roi_pool",
        check.one_scale("spatial_scale", spatial_scale, "boxes are rounded before they are scaled"),
        group_size=check.sampling_pair("group_size", group_size),
    )


@by_front_end
def ps_roi_pool(
    features: ArrayT,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    group_size: int | Sequence[int] = 0,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Pool each bin of a box by the mean of whole map cells, from the bin's own channels.

    Bins form groups, `group_size` down and across, by default one for each bin. Bin (i, j) of
    output channel c is pooled from the feature channel
    ``(c * G_rows + i * G_rows // rows) * G_columns + j * G_columns // columns``, where
    (G_rows, G_columns) is `group_size`: a score map for each position in a box.

    Parameters
    ----------
    features : ndarray
        Maps, an array of NumPy, CuPy, PyTorch, JAX or Dask: shape (N, C, H, W) or, with
        ``layout="NHWC"``, (N, H, W, C), where C is a multiple of the number of groups; float16,
        bfloat16, float32 or float64.
    spatial_scale : float
        Map cells per image pixel, for example 1/16: of rows and columns alike.

    Returns
    -------
    ndarray
        Shape (K, C / groups, rows, columns), or (K, rows, columns, C / groups) for NHWC, in the
        features' dtype. 0 for a bin without cells, and for NaN and infinite coordinates.

    Raises
    ------
    ValueError
        If the number of groups does not divide the channels.

    See Also
    --------
    ps_roi_pool_backward : Its gradient.
    ps_roi_align : Samples in place of whole cells, without rounding.
    roi_average_pool : The mean of whole cells, of the same channel for all bins.

    Notes
    -----
    Box corners are rounded to image pixels (half away from zero), and the last row and column of
    pixels belong to the box, before they are scaled; a box is at least a tenth of a cell long. A
    bin is every cell that it touches. Definition: Dai et al., "R-FCN" (2016), as in R-FCN's Caffe
    layer, MXNet and Paddle. torchvision rounds map cells instead.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> features = np.arange(1, 101, dtype=np.float32).reshape(1, 4, 5, 5)
    >>> roipool.ps_roi_pool(features, [[0, 0, 0, 3, 3]], output_size=2)
    array([[[[ 4., 31.],
             [64., 91.]]]], dtype=float32)
    """
    with Call(features=features, rois=rois, batch_indices=batch_indices, out=out) as call:
        placed = definition(spatial_scale, group_size)
        return call.averages(call.request(placed, output_size, layout))


@by_front_end
def ps_roi_pool_backward(
    grad_output: ArrayT,
    rois: Boxes,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    group_size: int | Sequence[int] = 0,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Return the gradient of :func:`ps_roi_pool` with respect to the features.

    Parameters
    ----------
    grad_output : ndarray
        Gradient of the pooled values, shape (K, C / groups, rows, columns) or
        (K, rows, columns, C / groups); float16, bfloat16, float32 or float64.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> grad_output = np.ones((1, 1, 1, 2), np.float32)
    >>> roipool.ps_roi_pool_backward(grad_output, [[0, 0, 0, 1, 0]], (1, 2, 1, 2))
    array([[[[1., 0.]],
    <BLANKLINE>
            [[0., 1.]]]], dtype=float32)
    """
    with Call(grad_output=grad_output, rois=rois, batch_indices=batch_indices, out=out) as call:
        placed = definition(spatial_scale, group_size)
        return call.average_backward(*call.checked_backward(placed, input_shape, layout))
