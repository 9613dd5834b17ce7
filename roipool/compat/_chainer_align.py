"""Chainer's ``roi_average_align_2d`` and ``roi_max_align_2d``: see `roipool.compat.chainer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from roipool import _arguments as check
from roipool import _boxes
from roipool._arrays import LIBRARY_OF, Array
from roipool._boxes import Form, Regions
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._pooling import Call
from roipool._request import Pooling
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions

SamplingRatio: TypeAlias = int | Sequence[int | None] | None


def scale_above_0(spatial_scale: Any) -> float:
    """Return a checked scale."""
    scale = check.real_number("spatial_scale", spatial_scale)
    if scale <= 0:
        raise ValueError(f"spatial_scale must be above 0, got {spatial_scale}")
    return scale


def boxes_y_first(name: str, rois: Any) -> Array:
    """Return a table of y1, x1, y2, x2 as x1, y1, x2, y2 in float64."""
    table = check.cast(check.number_array(name, rois), check.FLOAT64)
    if table.ndim != 2 or table.shape[1] != 4:
        raise ValueError(f"{name} must have shape (K, 4): y1, x1, y2, x2; got {tuple(table.shape)}")
    conventions.check_finite(name, table)
    swapped: Array = _boxes.swap_xy(table)
    return swapped


def native(array: Array) -> np.dtype[Any]:
    """Return an array's type in native byte order."""
    dtype = check.dtype_of(array)
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def in_float64(name: str, array: Any) -> Array:
    """Return an array in the type in which Chainer computes."""
    library = LIBRARY_OF[type(array)]
    if library is not None:  # before CuPy reads it to convert it
        library.check_address(name, array)
    return check.cast(check.float_array(name, array), check.FLOAT64)


def maxima(
    call: Call, x: Array, maps: Array, regions: Regions, pooling: Pooling, return_argmax: Any
) -> Any:
    """Return the maxima of `maps` in the type of `x`, and the argmax if asked for."""
    want_argmax = check.flag("return_argmax", return_argmax)
    pooled, argmax = call.maximum(maps, regions, pooling, return_argmax=want_argmax)
    pooled = check.cast(pooled, native(x))
    return (pooled, argmax) if want_argmax else pooled


def _regions(rois: Any, roi_indices: Any, images: int, dtype: np.dtype[Any], form: Form) -> Regions:
    boxes = boxes_y_first(form.boxes, rois)
    return Regions(boxes, _boxes.batch_indices(form.indices, roi_indices, boxes.shape[0], images))


ALIGN_FORM = Form(
    indices="roi_indices",
    size="outsize",
    features="x",
    grad_output="gy",
    input_shape="x_shape",
    read=_regions,
)


def sampling_of(sampling_ratio: SamplingRatio) -> tuple[int, int]:
    """Return a checked sampling ratio, where 0 stands for None."""
    pair = sampling_ratio if isinstance(sampling_ratio, (tuple, list)) else [sampling_ratio] * 2
    return check.sampling_pair("sampling_ratio", [0 if ratio is None else ratio for ratio in pair])


def _definition(spatial_scale: float, sampling_ratio: SamplingRatio) -> Definition:
    return Definition("roi_align", scale_above_0(spatial_scale), sampling_of(sampling_ratio))


@for_every_array
def roi_average_align_2d(
    x: ArrayT,
    rois: Any,
    roi_indices: Any,
    outsize: int | Sequence[int],
    spatial_scale: float,
    sampling_ratio: SamplingRatio = None,
) -> ArrayT:
    """Average ROI align as ``chainer.functions.roi_average_align_2d``.

    Parameters
    ----------
    rois : array_like
        Shape (K, 4): y1, x1, y2, x2 in image pixels; finite.
    spatial_scale : float
        Map cells per image pixel, above 0.
    sampling_ratio : int, None, or a pair of these
        Samples per bin along rows and columns; None or 0 is adaptive.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns). Maps of all types are pooled as float64.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import chainer
    >>> x = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> chainer.roi_average_align_2d(x, [[1, 1, 3, 3]], [0], 2, 1.0, 2)
    array([[[[10., 11.],
             [15., 16.]]]], dtype=float32)
    """
    with Call(ALIGN_FORM, x=in_float64("x", x), rois=rois, roi_indices=roi_indices) as call:
        placed = _definition(spatial_scale, sampling_ratio)
        maps, regions, pooling = call.checked_forward(placed, outsize)
        return check.cast(call.average([maps], regions, pooling), native(x))


@for_every_array
def roi_average_align_2d_backward(
    gy: ArrayT,
    rois: Any,
    roi_indices: Any,
    x_shape: Sequence[int],
    spatial_scale: float,
    sampling_ratio: SamplingRatio = None,
) -> ArrayT:
    """Return the gradient of :func:`roi_average_align_2d` with respect to `x`."""
    with Call(ALIGN_FORM, gy=in_float64("gy", gy), rois=rois, roi_indices=roi_indices) as call:
        checked = call.checked_backward(_definition(spatial_scale, sampling_ratio), x_shape)
        return check.cast(call.average_backward(*checked), native(gy))


@for_every_array
def roi_max_align_2d(
    x: ArrayT,
    rois: Any,
    roi_indices: Any,
    outsize: int | Sequence[int],
    spatial_scale: float,
    sampling_ratio: SamplingRatio = None,
    *,
    return_argmax: bool = False,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Maximum ROI align as ``chainer.functions.roi_max_align_2d``.

    Parameters
    ----------
    x, rois, roi_indices, outsize, spatial_scale, sampling_ratio
        As in :func:`roi_average_align_2d`.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns); -inf for a bin without samples inside the map. The argmax is
        int32: the index of the sample in the bin, row by row; -1 for none.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import chainer
    >>> x = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> chainer.roi_max_align_2d(x, [[1, 1, 3, 3]], [0], 2, 1.0, 2)
    array([[[[11.5, 12.5],
             [16.5, 17.5]]]], dtype=float32)
    """
    with Call(ALIGN_FORM, x=in_float64("x", x), rois=rois, roi_indices=roi_indices) as call:
        placed = _definition(spatial_scale, sampling_ratio)
        checked = call.checked_forward(placed, outsize, empty_value=-np.inf)
        return maxima(call, x, *checked, return_argmax)


@for_every_array
def roi_max_align_2d_backward(
    gy: ArrayT,
    argmax: ArrayT,
    rois: Any,
    roi_indices: Any,
    x_shape: Sequence[int],
    spatial_scale: float,
    sampling_ratio: SamplingRatio = None,
) -> ArrayT:
    """Return the gradient of :func:`roi_max_align_2d` with respect to `x`."""
    arrays = {"gy": in_float64("gy", gy), "argmax": argmax}
    with Call(ALIGN_FORM, **arrays, rois=rois, roi_indices=roi_indices) as call:
        checked = call.checked_backward(_definition(spatial_scale, sampling_ratio), x_shape)
        gradient, regions, pooling, shape = checked
        result = call.maximum_backward(gradient, argmax, regions, pooling, shape)
        return check.cast(result, native(gy))
