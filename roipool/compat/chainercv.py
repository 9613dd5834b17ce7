"""ChainerCV's four position-sensitive functions, as its CPU code computes them.

Boxes are not rounded, and at least a tenth of a cell long; positions are computed in float64, for
maps of any type. Scales must be above 0 and boxes finite, as in `roipool.compat.chainer`.

The maxima pool each group of channels for all bins, and keep the bins of the group: their time is
that of pooling all channels for all bins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from roipool import _arguments as check
from roipool._arguments import Regions
from roipool._arrays import Array
from roipool._definitions import Definition
from roipool._errors import shown
from roipool._front_ends import for_every_array
from roipool._layout import groups_of_bins
from roipool._pooling import DEFAULT_RULES, Call, MaxRules, Pooling
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


# ---- Maxima: a group of channels after the other


class _Group(NamedTuple):
    """A group of bins: its channels of the maps, and its bins in arrays (K, C, rows, columns)."""

    channels: slice
    bins: tuple[slice, slice, slice, slice]


def _groups(pooling: Pooling) -> Iterator[_Group]:
    """Yield the groups that have bins."""
    (down, across), (rows, columns) = pooling.group_size, pooling.output_size
    for i in range(down):
        for j in range(across):
            own_rows, own_columns = _bins_of(i, down, rows), _bins_of(j, across, columns)
            if own_rows.start < own_rows.stop and own_columns.start < own_columns.stop:
                bins = slice(None), slice(None), own_rows, own_columns
                yield _Group(slice(i * across + j, None, down * across), bins)


def _bins_of(group: int, groups: int, bins: int) -> slice:
    """Return the bins p with ``p * groups // bins == group``."""
    first, last = -(-group * bins // groups), -(-(group + 1) * bins // groups)
    return slice(first, last)


def _of_one_group(pooling: Pooling) -> Pooling:
    return pooling._replace(definition=pooling.definition._replace(group_size=(1, 1)))


def _maximum(
    call: Call, x: Array, placed: Definition, outsize: Outsize, rules: MaxRules, want_argmax: Any
) -> Array | tuple[Array, Array]:
    """Return the maxima, in the type of `x`, and the argmax if asked for."""
    want_argmax = check.flag("return_argmax", want_argmax)
    maps, regions, pooling = _checked(call, x, placed, outsize, -np.inf, rules)
    channels = maps.shape[1] // math.prod(pooling.group_size)
    shape = (len(regions.boxes), channels, *pooling.output_size)
    pooled, argmax = call.library.empty(shape, maps.dtype), None
    for group in _groups(pooling):
        of_group = check.float_array("x", maps[:, group.channels])
        values, indices = call.maximum(
            of_group, regions, _of_one_group(pooling), return_argmax=want_argmax
        )
        pooled[group.bins] = values[group.bins]
        if want_argmax:
            argmax = call.library.empty(shape, indices.dtype) if argmax is None else argmax
            argmax[group.bins] = indices[group.bins]
    pooled = check.cast(pooled, native(x))
    return pooled if argmax is None else (pooled, argmax)


def _maximum_backward(
    call: Call, gy: Array, argmax: Any, placed: Definition, x_shape: Any, rules: MaxRules
) -> Array:
    """Return the gradient of maxima, in the type of `gy`."""
    gradient, regions, pooling, shape = call.checked_backward(placed, x_shape, rules=rules)
    limit = shape[2] * shape[3] if rules.argmax_is_cell else None
    indices = check.argmax(call.library, argmax, gradient.shape, limit)
    result = call.library.empty(shape, gradient.dtype)
    result.fill(0)
    of_channels = shape[0], gradient.shape[1], shape[2], shape[3]
    for group in _groups(pooling):
        # The other bins have no argmax.
        own = call.library.empty(indices.shape, indices.dtype)
        own.fill(-1)
        own[group.bins] = indices[group.bins]
        result[:, group.channels] = call.maximum_backward(
            gradient, own, regions, _of_one_group(pooling), of_channels
        )
    return check.cast(result, native(gy))


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
    x: Array,
    rois: Any,
    roi_indices: Any,
    outsize: Outsize,
    spatial_scale: float,
    group_size: int,
) -> Array:
    """Position-sensitive average pooling as ``chainercv.functions.ps_roi_average_pooling_2d``.

    Parameters
    ----------
    x : ndarray
        Maps, shape (N, C * group_size * group_size, H, W).
    rois : array_like
        Shape (K, 4): y1, x1, y2, x2 in image pixels.
    roi_indices : array_like of int
        Shape (K,): the image of each box.
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

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

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
    gy: Array,
    rois: Any,
    roi_indices: Any,
    x_shape: Sequence[int],
    spatial_scale: float,
    group_size: int,
) -> Array:
    """Return the gradient of :func:`ps_roi_average_pooling_2d` with respect to `x`.

    Parameters
    ----------
    gy : ndarray
        Shape (K, C, rows, columns).
    rois, roi_indices, spatial_scale, group_size
        As in the forward.
    x_shape : sequence of int
        Shape of `x`.

    Returns
    -------
    ndarray
        Shape `x_shape`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    with Call(FORM, gy=in_float64("gy", gy), rois=rois, roi_indices=roi_indices) as call:
        checked = call.checked_backward(_pooling(spatial_scale, group_size), x_shape)
        return check.cast(call.average_backward(*checked), native(gy))


@for_every_array
def ps_roi_max_pooling_2d(
    x: Array,
    rois: Any,
    roi_indices: Any,
    outsize: Outsize,
    spatial_scale: float,
    group_size: int,
    *,
    return_argmax: bool = False,
) -> Array | tuple[Array, Array]:
    """Position-sensitive maximum pooling as ``chainercv.functions.ps_roi_max_pooling_2d``.

    Parameters
    ----------
    x, rois, roi_indices, outsize, spatial_scale, group_size
        As for :func:`ps_roi_average_pooling_2d`.
    return_argmax : bool
        Also return the argmax, which the backward needs.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns); -inf for an empty bin. The argmax is an integer array: the cell
        ``y * W + x``; -1 for none.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

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
    gy: Array,
    argmax: Array,
    rois: Any,
    roi_indices: Any,
    x_shape: Sequence[int],
    spatial_scale: float,
    group_size: int,
) -> Array:
    """Return the gradient of :func:`ps_roi_max_pooling_2d` with respect to `x`.

    Parameters
    ----------
    gy : ndarray
        Shape (K, C, rows, columns).
    argmax : ndarray of int
        The argmax from the forward.
    rois, roi_indices, spatial_scale, group_size
        As in the forward.
    x_shape : sequence of int
        Shape of `x`.

    Returns
    -------
    ndarray
        Shape `x_shape`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    arrays = {"gy": in_float64("gy", gy), "argmax": argmax}
    with Call(FORM, **arrays, rois=rois, roi_indices=roi_indices) as call:
        placed = _pooling(spatial_scale, group_size)
        return _maximum_backward(call, gy, argmax, placed, x_shape, _CELLS)


@for_every_array
def ps_roi_average_align_2d(
    x: Array,
    rois: Any,
    roi_indices: Any,
    outsize: Outsize,
    spatial_scale: float,
    group_size: int,
    sampling_ratio: SamplingRatio = None,
) -> Array:
    """Position-sensitive average ROI align as ``chainercv.functions.ps_roi_average_align_2d``.

    Parameters
    ----------
    x, rois, roi_indices, outsize, spatial_scale, group_size
        As for :func:`ps_roi_average_pooling_2d`.
    sampling_ratio : int, None or pair of these
        Samples per bin, down and across; None is adaptive.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns). Maps of all types are pooled as float64.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

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
    gy: Array,
    rois: Any,
    roi_indices: Any,
    x_shape: Sequence[int],
    spatial_scale: float,
    group_size: int,
    sampling_ratio: SamplingRatio = None,
) -> Array:
    """Return the gradient of :func:`ps_roi_average_align_2d` with respect to `x`.

    Parameters
    ----------
    gy : ndarray
        Shape (K, C, rows, columns).
    rois, roi_indices, spatial_scale, group_size, sampling_ratio
        As in the forward.
    x_shape : sequence of int
        Shape of `x`.

    Returns
    -------
    ndarray
        Shape `x_shape`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    with Call(FORM, gy=in_float64("gy", gy), rois=rois, roi_indices=roi_indices) as call:
        placed = _align(spatial_scale, group_size, sampling_ratio)
        return check.cast(
            call.average_backward(*call.checked_backward(placed, x_shape)), native(gy)
        )


@for_every_array
def ps_roi_max_align_2d(
    x: Array,
    rois: Any,
    roi_indices: Any,
    outsize: Outsize,
    spatial_scale: float,
    group_size: int,
    sampling_ratio: SamplingRatio = None,
    *,
    return_argmax: bool = False,
) -> Array | tuple[Array, Array]:
    """Position-sensitive maximum ROI align as ``chainercv.functions.ps_roi_max_align_2d``.

    Parameters
    ----------
    x, rois, roi_indices, outsize, spatial_scale, group_size, sampling_ratio
        As for :func:`ps_roi_average_align_2d`.
    return_argmax : bool
        Also return the argmax, which the backward needs.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns); -inf for a bin without samples inside the map. The argmax is an
        integer array: the index of the sample in the bin, row by row; -1 for none.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

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
    gy: Array,
    argmax: Array,
    rois: Any,
    roi_indices: Any,
    x_shape: Sequence[int],
    spatial_scale: float,
    group_size: int,
    sampling_ratio: SamplingRatio = None,
) -> Array:
    """Return the gradient of :func:`ps_roi_max_align_2d` with respect to `x`.

    Parameters
    ----------
    gy : ndarray
        Shape (K, C, rows, columns).
    argmax : ndarray of int
        The argmax from the forward.
    rois, roi_indices, spatial_scale, group_size, sampling_ratio
        As in the forward.
    x_shape : sequence of int
        Shape of `x`.

    Returns
    -------
    ndarray
        Shape `x_shape`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    arrays = {"gy": in_float64("gy", gy), "argmax": argmax}
    with Call(FORM, **arrays, rois=rois, roi_indices=roi_indices) as call:
        placed = _align(spatial_scale, group_size, sampling_ratio)
        return _maximum_backward(call, gy, argmax, placed, x_shape, DEFAULT_RULES)
