"""Caffe's ROIPooling layer, and the ROIAlign layer written for Caffe.

Array names are Caffe's (bottom, top). A batch index outside the batch aborts the process, or reads
out of bounds, in the original; here it is a ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._arrays import Array
from roipool._boxes import Form
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._gradients import publishes_gradient
from roipool._layout import Shape4
from roipool._pooling import Call
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat._caffe_loops import visits
from roipool.compat._conventions import CELLS_FROM_LOWEST_FLOAT32, FROM_LOWEST_FLOAT32

FORM = Form(
    size="pooled_h and pooled_w",
    features="bottom",
    grad_output="top_diff",
    input_shape="bottom_shape",
    read=conventions.numbered_boxes,
)


def _check_bins(gradient: Array, pooled_h: Any, pooled_w: Any) -> None:
    bins = check.size_pair(FORM.size, (pooled_h, pooled_w))
    conventions.check_bins(FORM.grad_output, gradient, bins, "pooled_h, pooled_w")


@for_every_array
@publishes_gradient("argmax")
def roi_pooling(
    bottom: ArrayT, rois: Any, pooled_h: int, pooled_w: int, spatial_scale: float
) -> tuple[ArrayT, ArrayT]:
    """Max ROI pooling like Caffe's ``ROIPooling`` layer.

    Parameters
    ----------
    rois : array_like
        Shape (K, 5): batch index, x1, y1, x2, y2 in image pixels.

    Returns
    -------
    top : ndarray
        Shape (K, C, pooled_h, pooled_w). A bin of only NaN is -3.4e38.
    argmax : ndarray of int32
        The argmax, ``y * W + x``; -1 for none.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import caffe
    >>> bottom = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> top, argmax = caffe.roi_pooling(bottom, [[0, 1, 1, 3, 3]], 2, 2, 1.0)
    >>> argmax
    array([[[[12, 13],
             [17, 18]]]], dtype=int32)
    """
    with Call(FORM, bottom=bottom, rois=rois) as call:
        scale = conventions.float32_number("spatial_scale", spatial_scale)
        pooling = call.request(
            Definition("roi_pool", scale), (pooled_h, pooled_w), rules=CELLS_FROM_LOWEST_FLOAT32
        )
        return call.maxima(pooling, return_argmax=True)


@for_every_array
def roi_pooling_backward(
    top_diff: ArrayT,
    argmax: ArrayT,
    rois: Any,
    bottom_shape: Sequence[int],
    pooled_h: int,
    pooled_w: int,
    spatial_scale: float,
    *,
    exact_gradient: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`roi_pooling` with respect to `bottom`, as gathered by Caffe.

    For each cell, Caffe visits the bins that may contain it, of boxes whose rounded ends enclose
    it. A reversed box, which the forward pools as one cell, therefore gets no gradient, nor does an
    argmax one cell beyond the box (bin edges are rounded outwards in floating point).

    Parameters
    ----------
    exact_gradient : bool
        Give every argmax its gradient: the derivative of the forward.
    """
    with Call(FORM, top_diff=top_diff, argmax=argmax, rois=rois) as call:
        scale = conventions.float32_number("spatial_scale", spatial_scale)
        is_exact = check.flag("exact_gradient", exact_gradient)
        placed = Definition("roi_pool" if is_exact else "caffe_roi_pool_gather", scale)
        checked = call.checked_backward(placed, bottom_shape, rules=CELLS_FROM_LOWEST_FLOAT32)
        gradient, regions, pooling, shape = checked
        _check_bins(gradient, pooled_h, pooled_w)
        return call.maximum_backward(gradient, argmax, regions, pooling, shape)


def _align_scale(spatial_scale: float, scale_pred: Any) -> float:
    if scale_pred is None:
        return conventions.float32_number("spatial_scale", spatial_scale)
    value = check.number_array("scale_pred", scale_pred)
    if value.size != 1:
        raise ValueError(f"scale_pred must hold one number, got shape {value.shape}")
    number = float(conventions.library_of(value).host_copy(value).reshape(()))
    return conventions.float32_number("scale_pred", abs(number))


@for_every_array
@publishes_gradient("argmax_x", "argmax_y")
def roi_align(
    bottom: ArrayT,
    rois: Any,
    pooled_h: int,
    pooled_w: int,
    spatial_scale: float,
    scale_pred: Any = None,
) -> tuple[ArrayT, ArrayT, ArrayT]:
    """Max ROI align like the ``ROIAlign`` layer for Caffe.

    Samples are one cell apart, from the start of each bin; boxes are one cell longer than their
    coordinates, and may be empty. As in the original, a sample at an integer coordinate counts its
    cell twice along that axis, and a corner beyond the last row or column is dropped.

    Parameters
    ----------
    rois : array_like
        Shape (K, 5): batch index, x1, y1, x2, y2 in image pixels.
    scale_pred : array_like, optional
        The layer's third bottom, one number: its absolute value replaces `spatial_scale`. (Of a
        larger blob the original reads the first number.) Reading it from a GPU synchronises.

    Returns
    -------
    top : ndarray
        Shape (K, C, pooled_h, pooled_w); 0 for an empty bin.
    argmax_x, argmax_y : ndarray of int32
        Column and row of the winning sample, truncated to integers; -1 for none.

    Notes
    -----
    NaN and infinite boxes are empty.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import caffe
    >>> bottom = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> caffe.roi_align(bottom, [[0, 1, 1, 3, 3]], 2, 2, 1.0)[0]
    array([[[[52., 29.],
             [41., 22.]]]], dtype=float32)
    """
    with Call(FORM, bottom=bottom, rois=rois) as call:
        placed = Definition("caffe_roi_align", _align_scale(spatial_scale, scale_pred))
        maps, regions, pooling = call.checked_forward(
            placed, (pooled_h, pooled_w), rules=FROM_LOWEST_FLOAT32
        )
        top, argmax = call.maximum(maps, regions, pooling)
        y, x = call.argmax_positions(argmax, regions, pooling, maps.shape)
        where, nobody, none = call.library.xp().where, argmax < 0, conventions.scalar_of(y)(-1)
        argmax_x, argmax_y = (check.cast(where(nobody, none, at), check.INT32) for at in (x, y))
        return top, argmax_x, argmax_y


@for_every_array
def roi_align_backward(
    top_diff: ArrayT,
    argmax_x: ArrayT,
    argmax_y: ArrayT,
    rois: Any,
    bottom_shape: Sequence[int],
    pooled_h: int,
    pooled_w: int,
    spatial_scale: float,
    scale_pred: Any = None,
    *,
    exact_gradient: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`roi_align` with respect to `bottom`, as the layer's loops do.

    A bin gives its whole gradient to the cell (argmax_y, argmax_x), whatever the weights of the
    forward. For each cell, the layer visits bins of boxes that it rounds outwards first: it misses
    the argmax of some bins. The last row and column of bins that it visits may be one too many.
    What it finds there is the first bin of the next row, or a bin of the next channel or box, which
    it counts if the argmax is the same cell. After the last box, it reads beyond its arrays; such
    bins count nothing here.

    Parameters
    ----------
    argmax_x, argmax_y : ndarray of int
        The argmax from the forward.
    exact_gradient : bool
        Distribute the gradient by the forward's weights: the derivative of the forward.
    """
    with Call(FORM, top_diff=top_diff, argmax_x=argmax_x, argmax_y=argmax_y, rois=rois) as call:
        scale = _align_scale(spatial_scale, scale_pred)
        placed = Definition("caffe_roi_align", scale)
        gradient, regions, pooling, shape = call.checked_backward(placed, bottom_shape)
        _check_bins(gradient, pooled_h, pooled_w)
        x = _whole_positions("argmax_x", argmax_x, gradient)
        y = _whole_positions("argmax_y", argmax_y, gradient)
        if not check.flag("exact_gradient", exact_gradient):
            cells = _winning_cells(call, y, x, shape)
            gradient, cells = visits(
                call.library, gradient, cells, regions, scale, max(shape[3], 1)
            )
            named = pooling._replace(rules=CELLS_FROM_LOWEST_FLOAT32)
            return call.maximum_backward(gradient, cells, regions, named, shape)
        # A truncated position identifies the only sample of the bin within the cell, since samples
        # are one cell apart.
        real, nobody = conventions.scalar_of(regions.boxes), (x < 0) | (y < 0)
        centre_y, centre_x = (
            call.library.xp().where(nobody, real(-1e6), check.cast(at, np.dtype(real)) + real(0.5))
            for at in (y, x)
        )
        numbers = call.argmax_at(centre_y, centre_x, regions, pooling, shape)
        return call.maximum_backward(gradient, numbers, regions, pooling, shape)


def _whole_positions(name: str, array: Any, gradient: Array) -> Array:
    """Check and return the columns or rows of an argmax."""
    positions = check.same_shape(name, array, gradient)
    dtype = check.dtype_of(positions)
    if dtype.kind not in "iu":
        raise TypeError(f"{name} must be an integer array, got {dtype}")
    return positions


def _winning_cells(call: Call, y: Array, x: Array, shape: Shape4) -> Array:
    """Return an argmax, given as rows and columns, as cells of the map; -1 for none."""
    nobody, beyond = (x < 0) | (y < 0), (x >= shape[3]) | (y >= shape[2])
    checked = call.library.checked_values(beyond & ~nobody)
    if checked is not None and checked.any():
        raise ValueError(f"argmax_x and argmax_y must lie in the map, {shape[2]} x {shape[3]}")
    rows, columns = (check.cast(each, check.INT64) for each in (y, x))
    cells = rows * shape[3] + columns
    return call.library.xp().where(nobody | beyond, np.int64(-1), cells)
