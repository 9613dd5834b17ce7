"""Position-sensitive ROI align: the mean of samples, of a channel that belongs to the bin."""

from __future__ import annotations

from collections.abc import Sequence

from roipool import _arguments as check
from roipool._definitions import Definition
from roipool._front_ends import by_front_end
from roipool._layout import Layout
from roipool._pooling import Call
from roipool._types import ArrayT, Boxes, Numbers
from roipool.ops import roi_align


def definition(
    spatial_scale: float | Sequence[float],
    sampling_ratio: int | Sequence[int],
    aligned: bool,
    group_size: int | Sequence[int],
) -> Definition:
    """Return the definition with these options, checked."""
    placed = roi_align.definition(spatial_scale, sampling_ratio, aligned)
    return placed._replace(group_size=check.sampling_pair("group_size", group_size))


@by_front_end
def ps_roi_align(
    features: ArrayT,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    group_size: int | Sequence[int] = 0,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Pool each bin of a box by the mean of bilinear samples, from the bin's own channels.

    Samples are those of :func:`roi_align`. Bins form groups, `group_size` down and across, by
    default one for each bin. Bin (i, j) of output channel c is pooled from the feature channel
    ``(c * G_rows + i * G_rows // rows) * G_columns + j * G_columns // columns``, where
    (G_rows, G_columns) is `group_size`: a score map for each position in a box.

    Parameters
    ----------
    features : ndarray
        Maps, an array of NumPy, CuPy, PyTorch, JAX or Dask: shape (N, C, H, W) or, with
        ``layout="NHWC"``, (N, H, W, C), where C is a multiple of the number of groups; float16,
        bfloat16, float32 or float64.
    aligned : bool
        Shift boxes by half a cell, so that a scaled box from 0 to 1 covers cell 0. False is the
        older convention, which also makes boxes at least one cell long.

    Returns
    -------
    ndarray
        Shape (K, C / groups, rows, columns), or (K, rows, columns, C / groups) for NHWC, in the
        features' dtype. A bin without samples (an empty box with an adaptive grid) is 0.

    Raises
    ------
    ValueError
        If the number of groups does not divide the channels.

    See Also
    --------
    ps_roi_align_backward, ps_roi_align_backward_rois : Its gradients.
    ps_roi_pool : The mean of whole cells.
    roi_align : The same channel for all bins.

    Notes
    -----
    Definition: position-sensitive score maps of Dai et al., "R-FCN" (2016), with the samples of
    He et al., "Mask R-CNN" (2017), as in torchvision and MXNet.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> features = np.arange(1, 101, dtype=np.float32).reshape(1, 4, 5, 5)
    >>> roipool.ps_roi_align(features, [[0, 0, 0, 5, 5]], output_size=2, sampling_ratio=2)
    array([[[[ 5.5, 33. ],
             [68. , 95.5]]]], dtype=float32)
    """
    with Call(features=features, rois=rois, batch_indices=batch_indices, out=out) as call:
        placed = definition(spatial_scale, sampling_ratio, aligned, group_size)
        return call.averages(call.request(placed, output_size, layout))


@by_front_end
def ps_roi_align_backward(
    grad_output: ArrayT,
    rois: Boxes,
    input_shape: Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    group_size: int | Sequence[int] = 0,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Return the gradient of :func:`ps_roi_align` with respect to the features.

    Parameters
    ----------
    grad_output : ndarray
        Gradient of the pooled values, shape (K, C / groups, rows, columns) or
        (K, rows, columns, C / groups); float16, bfloat16, float32 or float64.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> grad_output = np.ones((1, 1, 1, 2), np.float32)
    >>> roipool.ps_roi_align_backward(grad_output, [[0, 0, 0, 2, 1]], (1, 2, 1, 2))
    array([[[[1., 0.]],
    <BLANKLINE>
            [[0., 1.]]]], dtype=float32)
    """
    with Call(grad_output=grad_output, rois=rois, batch_indices=batch_indices, out=out) as call:
        placed = definition(spatial_scale, sampling_ratio, aligned, group_size)
        return call.average_backward(*call.checked_backward(placed, input_shape, layout))


@by_front_end
def ps_roi_align_backward_rois(
    grad_output: ArrayT,
    features: ArrayT,
    rois: Boxes,
    spatial_scale: float | Sequence[float] = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    group_size: int | Sequence[int] = 0,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
) -> ArrayT:
    """Return the gradient of :func:`ps_roi_align` with respect to the boxes.

    Conventions at whole positions and at the border are those of :func:`roi_align_backward_rois`.

    Parameters
    ----------
    grad_output : ndarray
        Gradient of the pooled values, in the features' dtype.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> features = np.arange(1, 19, dtype=np.float32).reshape(1, 2, 3, 3)
    >>> grad_output = np.ones((1, 1, 1, 2), np.float32)
    >>> roipool.ps_roi_align_backward_rois(grad_output, features, [[0, 1, 1, 2, 2]], 1.0, 1)
    array([[1., 3., 1., 3.]], dtype=float32)
    """
    with Call(
        grad_output=grad_output, features=features, rois=rois, batch_indices=batch_indices
    ) as call:
        placed = definition(spatial_scale, sampling_ratio, aligned, group_size)
        return call.average_backward_boxes(*call.checked_backward_boxes(placed, layout))
