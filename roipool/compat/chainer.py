"""Chainer's ``roi_average_pooling_2d``, as its CPU code computes it.

Boxes are rounded half to even, and bins' edges computed in float64, for any maps. (Its GPU kernel
rounds half away from zero, and computes edges in the maps' type: ``roipool.roi_average_pool``.)
The original's indices outside the batch wrap around or fail, and NaN and infinite boxes fail; here
all of these are ValueErrors.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._arguments import Form, Regions
from roipool._arrays import Array
from roipool._definitions import Definition
from roipool._pooling import Call
from roipool.compat import _conventions as conventions

_DEFINITION = Definition("chainer_roi_average_pool")
FORM = Form(
    indices="roi_indices", size="outsize", features="x", grad_output="gy", input_shape="x_shape"
)


def _form(spatial_scale: float) -> Form:
    """Return how boxes are read with this option, checked."""
    scale = check.real_number("spatial_scale", spatial_scale)
    if scale <= 0:
        raise ValueError(f"spatial_scale must be above 0, got {spatial_scale}")
    return FORM._replace(read=functools.partial(_regions, scale))


def _regions(
    scale: float, rois: Any, roi_indices: Any, images: int, dtype: np.dtype[Any], form: Form
) -> Regions:
    """Return boxes in map cells: the product in float64, then half to even, as Python rounds."""
    table = check.number_array(form.boxes, rois).astype(np.float64)
    if table.ndim != 2 or table.shape[1] != 4:
        raise ValueError(f"rois must have shape (K, 4): y1, x1, y2, x2; got {table.shape}")
    conventions.check_finite(form.boxes, table)
    with np.errstate(over="ignore"):  # an infinite box has no cells
        rounded = check.swap_xy(conventions.library_of(table).xp().rint(table * scale))
    indices = check.batch_indices(form.indices, roi_indices, len(table), images)
    return Regions(check.coordinates(rounded, dtype), indices)


def roi_average_pooling_2d(
    x: Array,
    rois: Any,
    roi_indices: Any,
    outsize: int | Sequence[int],
    spatial_scale: float,
) -> Array:
    """Average ROI pooling as ``chainer.functions.roi_average_pooling_2d``.

    Parameters
    ----------
    x : ndarray
        Maps, shape (N, C, H, W).
    rois : array_like
        Shape (K, 4): y1, x1, y2, x2 in image pixels; finite.
    roi_indices : array_like of int
        Shape (K,): the image of each box.
    outsize : int or (int, int)
        Bins: rows and columns.
    spatial_scale : float
        Map cells per image pixel, above 0.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns); 0 for an empty bin.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

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
        maps, regions, pooling = call.checked_forward(_DEFINITION, outsize)
        return call.average([maps], regions, pooling)


def roi_average_pooling_2d_backward(
    gy: Array, rois: Any, roi_indices: Any, x_shape: Sequence[int], spatial_scale: float
) -> Array:
    """Return the gradient of :func:`roi_average_pooling_2d` by `x`.

    Parameters
    ----------
    gy : ndarray
        Shape (K, C, rows, columns).
    rois, roi_indices, spatial_scale
        As in the forward.
    x_shape : sequence of int
        (N, C, H, W).

    Returns
    -------
    ndarray
        Shape `x_shape`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    with Call(_form(spatial_scale), gy=gy, rois=rois, roi_indices=roi_indices) as call:
        return call.average_backward(*call.checked_backward(_DEFINITION, x_shape))
