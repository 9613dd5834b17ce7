"""ROI align of rotated boxes: bilinear samples on a turned grid, averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from roipool import _arguments as check
from roipool._boxes import ROTATED
from roipool._definitions import Definition
from roipool._front_ends import by_front_end
from roipool._layout import Layout
from roipool._pooling import Call
from roipool._types import AngleUnit, AnyArray, ArrayT, Boxes, Numbers

RADIANS: dict[AngleUnit, float] = {"radians": 1.0, "degrees": math.pi / 180}


def definition(
    spatial_scale: float,
    sampling_ratio: int | Sequence[int],
    aligned: bool,
    clockwise: bool,
    angle_unit: str,
) -> Definition:
    """Return the definition with these options, checked."""
    turn = RADIANS[check.choice("angle_unit", angle_unit, tuple(RADIANS))]
    return Definition(
        "roi_align_rotated",
        check.one_scale("spatial_scale", spatial_scale, "two would not keep angles"),
        check.sampling_pair("sampling_ratio", sampling_ratio),
        check.flag("aligned", aligned),
        -turn if check.flag("clockwise", clockwise) else turn,
    )


@by_front_end
def roi_align_rotated(
    features: ArrayT,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: AngleUnit = "radians",
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Pool each rotated box to a fixed grid of averages of bilinear samples.

    The grid of samples of :func:`roi_align` is centred on the origin, rotated, and moved to the
    centre of the box. Samples more than one cell outside the outermost cell centres are 0.

    Parameters
    ----------
    features : ndarray
        Maps, an array of NumPy, CuPy, PyTorch, JAX or Dask: shape (N, C, H, W) or, with
        ``layout="NHWC"``, (N, H, W, C); float16, bfloat16, float32 or float64.
        H * W is at most 2**31 - 1.
    rois : array_like
        Boxes, centre and sides in image pixels: shape (K, 6) with rows batch index, centre x,
        centre y, width, height, angle; or (K, 5) without the batch index and with
        `batch_indices`; or a sequence of N arrays of shape (L, 5), one for each image.
    output_size : int or pair of int
        Bins of the output, (rows, columns); one int sets both. At most 2**31 - 1 bins.
    spatial_scale : float
        Map cells per image pixel, for example 1/16: of rows and columns alike, to keep angles.
    sampling_ratio : int or pair of int
        Samples per bin, (along the height, along the width), up to 32768; 0 is adaptive: as many as
        the bin is long in map cells, rounded up, and no more than 2**22.
    aligned : bool
        Shift boxes by half a cell, so that cell centres are at whole coordinates plus one half.
        False is the older convention, in which sides are at least one cell long.
    clockwise : bool
        Whether positive angles rotate clockwise in the displayed image (y pointing down). The
        default is counter-clockwise.
    angle_unit : {"radians", "degrees"}
        The unit of angles.
    batch_indices : array_like of int, optional
        Shape (K,): the image of each box, with `rois` of shape (K, 5).

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns), or (K, rows, columns, C) for NHWC, in the features' dtype.
        A bin without samples is 0.

    See Also
    --------
    roi_align_rotated_backward, roi_align_rotated_backward_rois : The gradients.
    roi_align : ROI align of upright boxes.

    Notes
    -----
    A box with NaN or infinite numbers, a centre beyond 2**30 cells, or an angle beyond 2**30
    radians is 0. A side of negative length mirrors the box with a fixed `sampling_ratio`, and makes
    it 0 with an adaptive one; if not `aligned`, the side is one cell long. Definition: Ma et al.,
    "Arbitrary-Oriented Scene Text Detection via Rotation Proposals" (2018), as in mmcv's
    ``RoIAlignRotated``. For detectron2's ``ROIAlignRotated``, use ``angle_unit="degrees"``; for
    OpenVINO's ``ROIAlignRotated-15``, set `clockwise`.

    Examples
    --------
    A quarter turn counter-clockwise: the upper edge of the box becomes the left edge.

    >>> import numpy as np, roipool
    >>> features = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> box = [[0, 2, 2, 2, 2, 90]]
    >>> roipool.roi_align_rotated(
    ...     features, box, output_size=2, sampling_ratio=2, angle_unit="degrees"
    ... )
    array([[[[12.,  7.],
             [13.,  8.]]]], dtype=float32)
    """
    with Call(ROTATED, features=features, rois=rois, batch_indices=batch_indices, out=out) as call:
        placed = definition(spatial_scale, sampling_ratio, aligned, clockwise, angle_unit)
        return call.averages(call.request(placed, output_size, layout))


@by_front_end
def roi_align_rotated_backward(
    grad_output: ArrayT,
    rois: Boxes,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: AngleUnit = "radians",
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Return the gradient of :func:`roi_align_rotated` with respect to the features.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> grad_output, box = np.ones((1, 1, 1, 1), np.float32), [[0, 1, 1, 1, 1, 0.5]]
    >>> roipool.roi_align_rotated_backward(grad_output, box, (1, 1, 2, 2))
    array([[[[0.25, 0.25],
             [0.25, 0.25]]]], dtype=float32)
    """
    with Call(
        ROTATED, grad_output=grad_output, rois=rois, batch_indices=batch_indices, out=out
    ) as call:
        placed = definition(spatial_scale, sampling_ratio, aligned, clockwise, angle_unit)
        return call.average_backward(*call.checked_backward(placed, input_shape, layout))


@overload
def roi_align_rotated_backward_rois(
    grad_output: NDArray[Any],
    features: AnyArray,
    rois: Boxes,
    spatial_scale: float = ...,
    sampling_ratio: int | Sequence[int] = ...,
    *,
    aligned: bool = ...,
    clockwise: bool = ...,
    angle_unit: AngleUnit = ...,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
) -> NDArray[np.floating[Any]]: ...
@overload
def roi_align_rotated_backward_rois(
    grad_output: ArrayT,
    features: AnyArray,
    rois: Boxes,
    spatial_scale: float = ...,
    sampling_ratio: int | Sequence[int] = ...,
    *,
    aligned: bool = ...,
    clockwise: bool = ...,
    angle_unit: AngleUnit = ...,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
) -> ArrayT: ...
@by_front_end
def roi_align_rotated_backward_rois(
    grad_output: ArrayT,
    features: AnyArray,
    rois: Boxes,
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int] = 0,
    *,
    aligned: bool = True,
    clockwise: bool = False,
    angle_unit: AngleUnit = "radians",
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
) -> ArrayT:
    """Return the gradient of :func:`roi_align_rotated` with respect to the boxes.

    It is the derivative of each interpolated sample by its position, times the derivative of the
    position by the numbers of the box. An adaptive number of samples counts as constant, and so
    does a side that is extended to one cell (``aligned=False``). At a whole coordinate, where
    interpolation has a kink, it is the derivative to the right.

    Returns
    -------
    ndarray
        Shape (K, 5): the gradient by centre x, centre y, width and height in image pixels, and by
        the angle in its unit; float64 for float64 maps, else float32. If `rois` is a sequence, the
        rows of its arrays follow each other.

    Examples
    --------
    On a map that rises by 1 per column, moving the box to the right by 1 adds 1:

    >>> import numpy as np, roipool
    >>> features = np.tile(np.arange(5.0), (1, 1, 5, 1))
    >>> box = [[0, 2.5, 2.5, 2, 2, 0]]
    >>> roipool.roi_align_rotated_backward_rois(np.ones((1, 1, 1, 1)), features, box)
    array([[1., 0., 0., 0., 0.]])
    """
    with Call(
        ROTATED, grad_output=grad_output, features=features, rois=rois, batch_indices=batch_indices
    ) as call:
        placed = definition(spatial_scale, sampling_ratio, aligned, clockwise, angle_unit)
        return call.average_backward_boxes(*call.checked_backward_boxes(placed, layout))
