"""Chainer's five functions for regions of interest, as its CPU code computes them.

Pooling rounds boxes half to even, and the edges of bins are computed in float64, for maps of any
type. (Chainer's GPU kernels round half away from zero and compute edges in the type of the maps, as
``roipool.roi_pool`` and ``roipool.roi_average_pool`` do.) In Chainer, indices outside the batch
wrap around or fail, and NaN and infinite boxes fail; here all of these are ValueErrors.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool import _boxes
from roipool._arrays import Array
from roipool._boxes import Form, Regions
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._gradients import publishes_gradient
from roipool._pooling import Call
from roipool._request import MaxRules, Pooling
from roipool._types import ArrayT
from roipool.compat import _chainer_align
from roipool.compat import _conventions as conventions
from roipool.compat._chainer_align import (
    boxes_y_first,
    in_float64,
    maxima,
    native,
    roi_average_align_2d,
    roi_average_align_2d_backward,
    roi_max_align_2d,
    roi_max_align_2d_backward,
    scale_above_0,
)

__all__ = [
    "roi_average_align_2d",
    "roi_average_align_2d_backward",
    "roi_average_pooling_2d",
    "roi_average_pooling_2d_backward",
    "roi_max_align_2d",
    "roi_max_align_2d_backward",
    "roi_max_pooling_2d",
    "roi_max_pooling_2d_backward",
    "roi_pooling_2d",
    "roi_pooling_2d_backward",
]

_DEFINITION = Definition("chainer_roi_average_pool")
_POOLING, _GATHERED = Definition("roi_pool"), Definition("caffe_roi_pool_gather")
_CELLS = MaxRules(argmax_is_cell=True)
POOLING_FORM = Form(size="outh and outw", features="x", grad_output="gy", input_shape="x_shape")
ALIGN_FORM = _chainer_align.ALIGN_FORM
FORM = POOLING_FORM._replace(indices="roi_indices", size="outsize")


def _form(spatial_scale: float) -> Form:
    """Return the form that reads boxes with this scale."""
    return FORM._replace(read=functools.partial(_regions, scale_above_0(spatial_scale)))


def _pooling_form(spatial_scale: float) -> Form:
    return POOLING_FORM._replace(
        read=functools.partial(_numbered_regions, scale_above_0(spatial_scale))
    )


def _regions(
    scale: float, rois: Any, roi_indices: Any, images: int, dtype: np.dtype[Any], form: Form
) -> Regions:
    """Return boxes in map cells."""
    table = boxes_y_first(form.boxes, rois)
    rounded = _rounded(table, scale)
    indices = _boxes.batch_indices(form.indices, roi_indices, table.shape[0], images)
    return Regions(_boxes.coordinates(rounded, dtype), indices)


def _numbered_regions(
    scale: float, rois: Any, _: None, images: int, dtype: np.dtype[Any], form: Form
) -> Regions:
    """Return boxes in map cells; their batch column is cut to a whole number."""
    in_pixels = conventions.numbered_boxes(rois, None, images, check.FLOAT64, form)
    conventions.check_finite(form.boxes, in_pixels.boxes)
    rounded = _rounded(in_pixels.boxes, scale)
    return Regions(_boxes.coordinates(rounded, dtype), in_pixels.batch_indices)


def _rounded(table: Array, scale: float) -> Array:
    """Return coordinates in map cells: multiplied in float64, rounded half to even."""
    with np.errstate(over="ignore"):  # an infinite box has no cells
        return conventions.library_of(table).xp().rint(table * scale)


@for_every_array
@publishes_gradient("argmax")
def roi_pooling_2d(
    x: ArrayT,
    rois: Any,
    outh: int,
    outw: int,
    spatial_scale: float,
    *,
    return_argmax: bool = False,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Max ROI pooling as ``chainer.functions.roi_pooling_2d``.

    Parameters
    ----------
    rois : array_like
        Shape (K, 5): batch index (cut to a whole number), x1, y1, x2, y2 in image pixels; finite.
    spatial_scale : float
        Map cells per image pixel, above 0.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, outh, outw); 0 for an empty bin. The argmax is int32, ``y * W + x``; -1 for
        none, where the original keeps 0.

    Notes
    -----
    A NaN cell is never the maximum, as in Chainer's GPU kernel; in Chainer's CPU code the result is
    NaN. A bin of only NaN is -inf. Maps of other types are pooled as float64, which gives the same
    maximum.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import chainer
    >>> x = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> chainer.roi_pooling_2d(x, [[0, 0.5, 0.5, 2.5, 2.5]], 2, 2, 1.0)
    array([[[[ 7.,  8.],
             [12., 13.]]]], dtype=float32)
    """
    with Call(_pooling_form(spatial_scale), x=x, rois=rois) as call:
        maps = check.float_array("x", in_float64("x", x), layout="NCHW")
        pooling = Pooling(_POOLING, check.size_pair(POOLING_FORM.size, (outh, outw)), rules=_CELLS)
        regions = call.regions(maps.shape[0], check.dtype_of(maps))
        return maxima(call, x, maps, regions, pooling, return_argmax)


@for_every_array
def roi_pooling_2d_backward(
    gy: ArrayT,
    argmax: ArrayT,
    rois: Any,
    x_shape: Sequence[int],
    outh: int,
    outw: int,
    spatial_scale: float,
    *,
    exact_gradient: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`roi_pooling_2d` with respect to `x`, as in Chainer.

    As in Caffe, a cell gets gradients only from boxes whose rounded ends enclose it: a reversed
    box, which the forward pools as one cell, contributes none. (Where a rounded box extends beyond
    the map, Chainer fails or adds to other cells.)

    Parameters
    ----------
    gy : ndarray
        Shape (K, C, outh, outw).
    exact_gradient : bool
        Give every argmax its gradient: the derivative of the forward.
    """
    with Call(_pooling_form(spatial_scale), gy=gy, argmax=argmax, rois=rois) as call:
        gradient, shape = in_float64("gy", gy), check.map_shape("x_shape", x_shape)
        regions = call.regions(shape[0], check.dtype_of(gradient))
        bins = check.grad_output("gy", gradient, regions.boxes.shape[0], shape)
        conventions.check_bins(
            "gy", gradient, check.size_pair(POOLING_FORM.size, (outh, outw)), "outh, outw"
        )
        definition = _POOLING if check.flag("exact_gradient", exact_gradient) else _GATHERED
        pooling = Pooling(definition, bins, rules=_CELLS)
        result = call.maximum_backward(gradient, argmax, regions, pooling, shape)
        return check.cast(result, native(gy))


def _without_last_cells(regions: Regions) -> Regions:
    """Return boxes without their last row and column, which Chainer's newer poolings leave out.

    The definition still gives a box at least one row and one column.
    """
    boxes = regions.boxes
    is_end = conventions.library_of(boxes).xp().arange(4) >= 2
    return regions._replace(boxes=boxes - check.cast(is_end, check.dtype_of(boxes)))


@for_every_array
def roi_max_pooling_2d(
    x: ArrayT,
    rois: Any,
    roi_indices: Any,
    outsize: int | Sequence[int],
    spatial_scale: float,
    *,
    return_argmax: bool = False,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Max ROI pooling as ``chainer.functions.roi_max_pooling_2d``.

    The cells are those of :func:`roi_average_pooling_2d`: the last row and column of a rounded box
    do not belong to it, unlike in :func:`roi_pooling_2d`.

    Parameters
    ----------
    rois : array_like
        Shape (K, 4): y1, x1, y2, x2 in image pixels; finite.
    spatial_scale : float
        Map cells per image pixel, above 0.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns); -inf for an empty bin. The argmax is int32, ``y * W + x``; -1
        for none.

    Notes
    -----
    NaN is as in :func:`roi_pooling_2d`.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import chainer
    >>> x = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> chainer.roi_max_pooling_2d(x, [[0.5, 0.5, 2.5, 2.5]], [0], 2, 1.0)
    array([[[[1., 2.],
             [6., 7.]]]], dtype=float32)
    """
    with Call(
        _form(spatial_scale), x=in_float64("x", x), rois=rois, roi_indices=roi_indices
    ) as call:
        checked = call.checked_forward(_POOLING, outsize, empty_value=-np.inf, rules=_CELLS)
        maps, regions, pooling = checked
        return maxima(call, x, maps, _without_last_cells(regions), pooling, return_argmax)


@for_every_array
def roi_max_pooling_2d_backward(
    gy: ArrayT,
    argmax: ArrayT,
    rois: Any,
    roi_indices: Any,
    x_shape: Sequence[int],
    spatial_scale: float,
) -> ArrayT:
    """Return the gradient of :func:`roi_max_pooling_2d` with respect to `x`."""
    arrays = {"gy": in_float64("gy", gy), "argmax": argmax}
    with Call(_form(spatial_scale), **arrays, rois=rois, roi_indices=roi_indices) as call:
        checked = call.checked_backward(_POOLING, x_shape, rules=_CELLS)
        gradient, regions, pooling, shape = checked
        boxes = _without_last_cells(regions)
        result = call.maximum_backward(gradient, argmax, boxes, pooling, shape)
        return check.cast(result, native(gy))


@for_every_array
def roi_average_pooling_2d(
    x: ArrayT,
    rois: Any,
    roi_indices: Any,
    outsize: int | Sequence[int],
    spatial_scale: float,
) -> ArrayT:
    """Average ROI pooling as ``chainer.functions.roi_average_pooling_2d``.

    Parameters
    ----------
    rois, spatial_scale
        As in :func:`roi_max_pooling_2d`.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns); 0 for an empty bin.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import chainer
    >>> x = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> chainer.roi_average_pooling_2d(x, [[0.5, 0.5, 2.5, 2.5]], [0], 2, 1.0)
    array([[[[1., 2.],
             [6., 7.]]]], dtype=float32)
    """
    with Call(_form(spatial_scale), x=x, rois=rois, roi_indices=roi_indices) as call:
        return call.averages(call.request(_DEFINITION, outsize))


@for_every_array
def roi_average_pooling_2d_backward(
    gy: ArrayT, rois: Any, roi_indices: Any, x_shape: Sequence[int], spatial_scale: float
) -> ArrayT:
    """Return the gradient of :func:`roi_average_pooling_2d` with respect to `x`."""
    with Call(_form(spatial_scale), gy=gy, rois=rois, roi_indices=roi_indices) as call:
        return call.average_backward(*call.checked_backward(_DEFINITION, x_shape))
