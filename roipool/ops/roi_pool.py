"""ROI pooling: the maximum over the whole cells of each bin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from roipool import _arguments as check
from roipool._definitions import Definition
from roipool._dtypes import FLOATS_AND_INTEGERS
from roipool._front_ends import by_front_end
from roipool._layout import Layout
from roipool._pooling import Call
from roipool._request import MaxRules
from roipool._types import AnyArray, ArrayT, Boxes, Integers, Numbers, PooledDType, ScalarT

RULES = MaxRules(argmax_is_cell=True)


def definition(spatial_scale: float | Sequence[float]) -> Definition:
    """Return the definition with this option, checked."""
    return Definition("roi_pool", check.map_scale("spatial_scale", spatial_scale))


@overload
def roi_pool(
    features: Integers,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = ...,
    *,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
    return_argmax: Literal[False] = ...,
    dtype: None = ...,
    out: NDArray[np.float32] | None = ...,
) -> NDArray[np.float32]: ...
@overload
def roi_pool(
    features: Integers,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = ...,
    *,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
    return_argmax: bool = ...,
    dtype: PooledDType,
    out: NDArray[Any] | None = ...,
) -> Any: ...
@overload
def roi_pool(
    features: ArrayT,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = ...,
    *,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
    return_argmax: Literal[False] = ...,
    dtype: PooledDType | None = ...,
    out: ArrayT | None = ...,
) -> ArrayT: ...
@overload
def roi_pool(
    features: Integers,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = ...,
    *,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
    return_argmax: Literal[True],
    dtype: None = ...,
    out: NDArray[np.float32] | None = ...,
) -> tuple[NDArray[np.float32], NDArray[np.signedinteger[Any]]]: ...
@overload
def roi_pool(
    features: NDArray[ScalarT],
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = ...,
    *,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
    return_argmax: Literal[True],
    dtype: PooledDType | None = ...,
    out: NDArray[ScalarT] | None = ...,
) -> tuple[NDArray[ScalarT], NDArray[np.signedinteger[Any]]]: ...
@overload
def roi_pool(
    features: ArrayT,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = ...,
    *,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
    return_argmax: Literal[True],
    dtype: PooledDType | None = ...,
    out: ArrayT | None = ...,
) -> tuple[ArrayT, ArrayT]: ...
@by_front_end
def roi_pool(
    features: ArrayT,
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = 1.0,
    *,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    return_argmax: bool = False,
    dtype: PooledDType | None = None,
    out: ArrayT | None = None,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Pool each box to a fixed grid by the maximum over whole map cells.

    This is Fast R-CNN's ROI pooling as Caffe computes it. Box corners are scaled and rounded to
    map cells (half away from zero), and both ends belong to the box, which is at least one cell
    long. The edges of bins are rounded outwards, so neighbouring bins may share cells.

    Parameters
    ----------
    return_argmax : bool
        Also return the argmax, which the backward needs.
    features
        As in :func:`roi_align`.

    Returns
    -------
    pooled : ndarray
        Shape (K, C, rows, columns), or (K, rows, columns, C) for NHWC, in the features' dtype,
        or float32 for integers, or `dtype`.
        A bin without cells is 0. NaN cells are ignored; a bin with only NaN cells is -inf.
    argmax : ndarray
        Only with `return_argmax`. Same shape, int32 (int64 if H*W exceeds 2**31 - 1): the index
        ``y * W + x`` of the largest cell, the first in row order of equal cells; -1 for a bin
        without cells or with only NaN.

    See Also
    --------
    roi_pool_backward : The gradient.
    roi_align : Samples instead of whole cells, without rounding.
    roi_average_pool : The average of whole cells.
    roipool.compat.torchvision.roi_pool : The function with torchvision's results.

    Notes
    -----
    NaN and infinite coordinates give 0 and -1. Definition: Girshick, "Fast R-CNN" (2015), and
    Caffe's ``roi_pooling_layer``; torchvision, MXNet, ONNX Runtime and Paddle agree with it.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> features = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> roipool.roi_pool(features, [[0, 1, 1, 3, 3]], output_size=2)
    array([[[[13., 14.],
             [18., 19.]]]], dtype=float32)
    """
    with Call(features=features, rois=rois, batch_indices=batch_indices, out=out) as call:
        want_argmax = check.flag("return_argmax", return_argmax)
        placed = definition(spatial_scale)
        pooling = call.request(placed, output_size, layout, rules=RULES)
        return call.maxima(pooling, FLOATS_AND_INTEGERS, dtype, return_argmax=want_argmax)


@by_front_end
def roi_pool_backward(
    grad_output: ArrayT,
    argmax: AnyArray,
    rois: Boxes,
    input_shape: Sequence[int],
    *,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Return the gradient of :func:`roi_pool` with respect to the features.

    The gradient of a pooled value goes to the cell that its argmax names.

    Parameters
    ----------
    argmax : ndarray of int
        Same shape: the argmax that :func:`roi_pool` returned.
    rois : array_like
        The boxes, as in :func:`roi_pool`; only their batch indices are used.

    Raises
    ------
    ValueError
        If `argmax` is out of range for the map.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> features = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    >>> rois = [[0, 0, 0, 1, 1]]
    >>> pooled, argmax = roipool.roi_pool(features, rois, 1, return_argmax=True)
    >>> roipool.roi_pool_backward(np.ones_like(pooled), argmax, rois, features.shape)
    array([[[[0., 0., 0.],
             [0., 1., 0.],
             [0., 0., 0.]]]], dtype=float32)
    """
    with Call(
        grad_output=grad_output, argmax=argmax, rois=rois, batch_indices=batch_indices, out=out
    ) as call:
        # The argmax is a cell index, so no scale is needed.
        checked = call.checked_backward(Definition("roi_pool"), input_shape, layout, RULES)
        gradient, regions, pooling, shape = checked
        return call.maximum_backward(gradient, argmax, regions, pooling, shape)
