"""ChainerCV's four position-sensitive functions, as its CPU code computes them.

Boxes are not rounded, and at least a tenth of a cell long; positions are computed in float64, for
maps of any type. Scales must be above 0 and boxes finite, as in `roipool.compat.chainer`.

The maximum functions pool each group of channels for all bins, and keep only the bins that belong
to it. They take as long as pooling all channels for all bins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from roipool import _arguments as check
from roipool._arrays import Array
from roipool._boxes import Regions
from roipool._definitions import Definition
from roipool._errors import shown
from roipool._front_ends import for_every_array
from roipool._layout import groups_of_bins
from roipool._pooling import Call
from roipool._request import DEFAULT_RULES, MaxRules, Pooling
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat._chainer_align import (
    ALIGN_FORM,
    SamplingRatio,
    in_float64,
    native,
    sampling_of,
    scale_above_0,
)

Outsize: TypeAlias = int | Sequence[int]
FORM = ALIGN_FORM
_CELLS = MaxRules(argmax_is_cell=True)


def _pooling(spatial_scale: float, group_size: int | Sequence[int]) -> Definition:
    """Return pooling of whole cells with these options, checked."""
    groups = check.sampling_pair("group_size", group_size)
    return Definition("chainercv_ps_roi_pool", scale_above_0(spatial_scale), group_size=groups)


def _align(
    spatial_scale: float, group_size: int | Sequence[int], sampling_ratio: SamplingRatio
) -> Definition:
    """Return ROI align with these options, checked."""
    placed = _pooling(spatial_scale, group_size)
    return placed._replace(name="chainercv_ps_roi_align", sampling=sampling_of(sampling_ratio))


def _size(outsize: Outsize, channels: int, placed: Definition) -> tuple[int, int]:
    """Return the rows and columns of bins; `outsize` may begin with the number of channels."""
    if not (isinstance(outsize, (tuple, list)) and len(outsize) == 3):
        return check.size_pair("outsize", outsize)
    size = check.size_pair("outsize", tuple(outsize[1:]))
    groups = math.prod(groups_of_bins(placed.group_size, size))
    if check.whole_number("outsize[0]", outsize[0]) * groups != channels:
        raise ValueError(
            f"outsize[0] must be {channels // groups}, for {channels} channels of x in {groups} "
            f"groups, got {shown(outsize[0])}"
        )
    return size


# ---- Maxima, one group of channels at a time


def _groups(pooling: Pooling) -> list[tuple[int, int]]:
    """Return the row and column of each group of bins."""
    down, across = pooling.group_size
    return [*itertools.product(range(down), range(across))]


def _channels_of(group: tuple[int, int], pooling: Pooling) -> slice:
    """Return the channels from which a group of bins is pooled."""
    down, across = pooling.group_size
    return slice(group[0] * across + group[1], None, down * across)


def _is_in_group(call: Call, group: tuple[int, int], pooling: Pooling) -> Array:
    """Return a mask of the bins in a group, (rows, columns): ``bin * groups // bins == group``."""
    xp = call.library.xp()
    (down, across), (rows, columns) = pooling.group_size, pooling.output_size
    own_rows = xp.arange(rows) * down // rows == group[0]
    own_columns = xp.arange(columns) * across // columns == group[1]
    return own_rows[:, None] & own_columns


def _of_one_group(pooling: Pooling) -> Pooling:
    return pooling._replace(definition=pooling.definition._replace(group_size=(1, 1)))


def _maximum(
    call: Call, x: Array, placed: Definition, outsize: Outsize, rules: MaxRules, want_argmax: Any
) -> Array | tuple[Array, Array]:
    """Return the maxima, in the type of `x`, and the argmax if asked for."""
    want_argmax = check.flag("return_argmax", want_argmax)
    maps, regions, pooling = _checked(call, x, placed, outsize, -np.inf, rules)
    found: list[Array] = []
    for group in _groups(pooling):
        # Engines read contiguous arrays, as `float_array` returns them.
        of_group = check.float_array("x", maps[:, _channels_of(group, pooling)])
        results = call.maximum(of_group, regions, _of_one_group(pooling), return_argmax=want_argmax)
        own = _is_in_group(call, group, pooling)
        parts = results if want_argmax else results[:1]
        found = [
            call.library.xp().where(own, part, before)
            for part, before in zip(parts, found or parts, strict=True)
        ]
    pooled = check.cast(found[0], native(x))
    return (pooled, found[1]) if want_argmax else pooled


def _maximum_backward(
    call: Call, gy: Array, argmax: Any, placed: Definition, x_shape: Any, rules: MaxRules
) -> Array:
    """Return the gradient of maxima, in the type of `gy`."""
    gradient, regions, pooling, shape = call.checked_backward(placed, x_shape, rules=rules)
    limit = shape[2] * shape[3] if rules.argmax_is_cell else None
    indices = check.argmax(call.library, argmax, gradient.shape, limit)
    of_channels = shape[0], gradient.shape[1], shape[2], shape[3]
    xp, none, parts = call.library.xp(), conventions.scalar_of(indices)(-1), []
    for group in _groups(pooling):
        # The other bins have no argmax.
        own = xp.where(_is_in_group(call, group, pooling), indices, none)
        request = _of_one_group(pooling)
        parts.append(call.maximum_backward(gradient, own, regions, request, of_channels))
    return check.cast(xp.stack(parts, axis=2).reshape(shape), native(gy))


def _checked(
    call: Call,
    x: Array,
    placed: Definition,
    outsize: Outsize,
    empty_value: float = 0.0,
    rules: MaxRules = DEFAULT_RULES,
) -> tuple[Array, Regions, Pooling]:
    """Return the maps, the boxes, and the request."""
    size = _size(outsize, x.shape[1] if x.ndim == 4 else 0, placed)
    return call.checked_forward(placed, size, empty_value=empty_value, rules=rules)


# ---- The functions


@for_every_array
def ps_roi_average_pooling_2d(
    x: ArrayT,
    rois: Any,
    roi_indices: Any,
    outsize: Outsize,
    spatial_scale: float,
    group_size: int,
) -> ArrayT:
    """Position-sensitive average pooling as ``chainercv.functions.ps_roi_average_pooling_2d``.

    Parameters
    ----------
    x : ndarray
        Maps, shape (N, C * group_size * group_size, H, W).
    rois : array_like
        Shape (K, 4): y1, x1, y2, x2 in image pixels.
    outsize : int, (int, int) or (int, int, int)
        Bins: rows and columns; of three numbers the first is C.
    spatial_scale : float
        Map cells per image pixel, above 0.
    group_size : int
        Groups of bins, down and across; 0: as many as bins. Each group is pooled from channels of
        its own.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns). Maps of all types are pooled as float64.

    See Also
    --------
    roipool.ps_roi_pool : The rule of R-FCN, which rounds boxes.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import chainercv
    >>> x = np.arange(1, 101, dtype=np.float32).reshape(1, 4, 5, 5)
    >>> chainercv.ps_roi_average_pooling_2d(x, [[0, 0, 4, 4]], [0], 2, 1.0, 2)
    array([[[[ 4., 31.],
             [64., 91.]]]], dtype=float32)
    """
    with Call(FORM, x=in_float64("x", x), rois=rois, roi_indices=roi_indices) as call:
        maps, regions, pooling = _checked(call, x, _pooling(spatial_scale, group_size), outsize)
        return check.cast(call.average([maps], regions, pooling), native(x))


@for_every_array
def ps_roi_average_pooling_2d_backward(
    gy: ArrayT,
    rois: Any,
    roi_indices: Any,
    x_shape: Sequence[int],
    spatial_scale: float,
    group_size: int,
) -> ArrayT:
    """Return the gradient of :func:`ps_roi_average_pooling_2d` with respect to `x`."""
    with Call(FORM, gy=in_float64("gy", gy), rois=rois, roi_indices=roi_indices) as call:
        checked = call.checked_backward(_pooling(spatial_scale, group_size), x_shape)
        return check.cast(call.average_backward(*checked), native(gy))


@for_every_array
def ps_roi_max_pooling_2d(
    x: ArrayT,
    rois: Any,
    roi_indices: Any,
    outsize: Outsize,
    spatial_scale: float,
    group_size: int,
    *,
    return_argmax: bool = False,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Position-sensitive maximum pooling as ``chainercv.functions.ps_roi_max_pooling_2d``.

    Parameters
    ----------
    x, rois, roi_indices, outsize, spatial_scale, group_size
        As in :func:`ps_roi_average_pooling_2d`.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns); -inf for an empty bin. The argmax is an integer array: the cell
        ``y * W + x``; -1 for none.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import chainercv
    >>> x = np.arange(1, 101, dtype=np.float32).reshape(1, 4, 5, 5)
    >>> chainercv.ps_roi_max_pooling_2d(x, [[0, 0, 4, 4]], [0], 2, 1.0, 2)
    array([[[[ 7., 34.],
             [67., 94.]]]], dtype=float32)
    """
    with Call(FORM, x=in_float64("x", x), rois=rois, roi_indices=roi_indices) as call:
        placed = _pooling(spatial_scale, group_size)
        return _maximum(call, x, placed, outsize, _CELLS, return_argmax)


@for_every_array
def ps_roi_max_pooling_2d_backward(
    gy: ArrayT,
    argmax: ArrayT,
    rois: Any,
    roi_indices: Any,
    x_shape: Sequence[int],
    spatial_scale: float,
    group_size: int,
) -> ArrayT:
    """Return the gradient of :func:`ps_roi_max_pooling_2d` with respect to `x`."""
    arrays = {"gy": in_float64("gy", gy), "argmax": argmax}
    with Call(FORM, **arrays, rois=rois, roi_indices=roi_indices) as call:
        placed = _pooling(spatial_scale, group_size)
        return _maximum_backward(call, gy, argmax, placed, x_shape, _CELLS)


@for_every_array
def ps_roi_average_align_2d(
    x: ArrayT,
    rois: Any,
    roi_indices: Any,
    outsize: Outsize,
    spatial_scale: float,
    group_size: int,
    sampling_ratio: SamplingRatio = None,
) -> ArrayT:
    """Position-sensitive average ROI align as ``chainercv.functions.ps_roi_average_align_2d``.

    Parameters
    ----------
    x, rois, roi_indices, outsize, spatial_scale, group_size
        As in :func:`ps_roi_average_pooling_2d`.
    sampling_ratio : int, None or pair of these
        Samples per bin, down and across; None is adaptive.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns). Maps of all types are pooled as float64.

    See Also
    --------
    roipool.ps_roi_align : With ``aligned=False`` the same samples of boxes of one cell or more.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import chainercv
    >>> x = np.arange(1, 101, dtype=np.float32).reshape(1, 4, 5, 5)
    >>> chainercv.ps_roi_average_align_2d(x, [[1, 1, 3, 3]], [0], 2, 1.0, 2, 2)
    array([[[[10., 36.],
             [65., 91.]]]], dtype=float32)
    """
    with Call(FORM, x=in_float64("x", x), rois=rois, roi_indices=roi_indices) as call:
        placed = _align(spatial_scale, group_size, sampling_ratio)
        maps, regions, pooling = _checked(call, x, placed, outsize)
        return check.cast(call.average([maps], regions, pooling), native(x))


@for_every_array
def ps_roi_average_align_2d_backward(
    gy: ArrayT,
    rois: Any,
    roi_indices: Any,
    x_shape: Sequence[int],
    spatial_scale: float,
    group_size: int,
    sampling_ratio: SamplingRatio = None,
) -> ArrayT:
    """Return the gradient of :func:`ps_roi_average_align_2d` with respect to `x`."""
    with Call(FORM, gy=in_float64("gy", gy), rois=rois, roi_indices=roi_indices) as call:
        placed = _align(spatial_scale, group_size, sampling_ratio)
        return check.cast(
            call.average_backward(*call.checked_backward(placed, x_shape)), native(gy)
        )


@for_every_array
def ps_roi_max_align_2d(
    x: ArrayT,
    rois: Any,
    roi_indices: Any,
    outsize: Outsize,
    spatial_scale: float,
    group_size: int,
    sampling_ratio: SamplingRatio = None,
    *,
    return_argmax: bool = False,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Position-sensitive maximum ROI align as ``chainercv.functions.ps_roi_max_align_2d``.

    Parameters
    ----------
    x, rois, roi_indices, outsize, spatial_scale, group_size, sampling_ratio
        As in :func:`ps_roi_average_align_2d`.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns); -inf for a bin without samples inside the map. The argmax is an
        integer array: the index of the sample in the bin, row by row; -1 for none.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import chainercv
    >>> x = np.arange(1, 101, dtype=np.float32).reshape(1, 4, 5, 5)
    >>> chainercv.ps_roi_max_align_2d(x, [[1, 1, 3, 3]], [0], 2, 1.0, 2, 2)
    array([[[[11.5, 37.5],
             [66.5, 92.5]]]], dtype=float32)
    """
    with Call(FORM, x=in_float64("x", x), rois=rois, roi_indices=roi_indices) as call:
        placed = _align(spatial_scale, group_size, sampling_ratio)
        return _maximum(call, x, placed, outsize, DEFAULT_RULES, return_argmax)


@for_every_array
def ps_roi_max_align_2d_backward(
    gy: ArrayT,
    argmax: ArrayT,
    rois: Any,
    roi_indices: Any,
    x_shape: Sequence[int],
    spatial_scale: float,
    group_size: int,
    sampling_ratio: SamplingRatio = None,
) -> ArrayT:
    """Return the gradient of :func:`ps_roi_max_align_2d` with respect to `x`."""
    arrays = {"gy": in_float64("gy", gy), "argmax": argmax}
    with Call(FORM, **arrays, rois=rois, roi_indices=roi_indices) as call:
        placed = _align(spatial_scale, group_size, sampling_ratio)
        return _maximum_backward(call, gy, argmax, placed, x_shape, DEFAULT_RULES)
