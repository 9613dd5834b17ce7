"""MXNet's ``ROIPooling``, its ``contrib`` operators, and an older ``ROIAlign``.

A box whose batch index is outside the batch is pooled to 0 and has no gradient, as in MXNet's
ROIPooling. (For such boxes contrib.ROIAlign and RROIAlign overwrite values of other boxes or read
out of bounds, and the older operator checks negative indices only.)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool import _boxes
from roipool._arrays import Array, Library
from roipool._definitions import Definition
from roipool._errors import shown
from roipool._front_ends import for_every_array
from roipool._gradients import publishes_gradient
from roipool._pooling import Call
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat import _mxnet_deformable, _rotated
from roipool.compat._conventions import CELLS_FROM_LOWEST_FLOAT32, FROM_LOWEST_FLOAT32
from roipool.compat._mxnet_deformable import (
    contrib_DeformablePSROIPooling,
    contrib_DeformablePSROIPooling_backward,
    contrib_DeformablePSROIPooling_backward_trans,
)

__all__ = [
    "ROIAlign",
    "ROIAlign_backward",
    "ROIPooling",
    "ROIPooling_backward",
    "contrib_DeformablePSROIPooling",
    "contrib_DeformablePSROIPooling_backward",
    "contrib_DeformablePSROIPooling_backward_trans",
    "contrib_PSROIPooling",
    "contrib_PSROIPooling_backward",
    "contrib_ROIAlign",
    "contrib_ROIAlign_backward",
    "contrib_RROIAlign",
    "contrib_RROIAlign_backward",
]

FORM, DEFORMABLE_FORM = _mxnet_deformable.FORM, _mxnet_deformable.DEFORMABLE_FORM
ROTATED_FORM = FORM._replace(
    columns=_boxes.ROTATED.columns,
    read=functools.partial(_rotated.boxes_in_degrees, unknown_image="zero"),
)


def _scale(spatial_scale: Any) -> float:
    return conventions.float32_share("spatial_scale", spatial_scale)


def _pair(pooled_size: Any) -> tuple[int, int]:
    if not isinstance(pooled_size, (tuple, list)):
        raise TypeError(f"pooled_size must be a pair of ints, got {shown(pooled_size)}")
    return check.size_pair("pooled_size", pooled_size)


def _absolute(library: Library, argmax: Array, indices: Array, shape: Sequence[int]) -> Array:
    """Return argmax as places in the whole flat array of features."""
    first = _first_places(library, indices, shape)
    return library.xp().where(argmax < 0, np.int64(-1), first + argmax)


def _first_places(library: Library, indices: Array, shape: Sequence[int]) -> Array:
    """Return where the planes of each box's image begin in the flat features; (K, C, 1, 1)."""
    channels = library.xp().arange(shape[1], dtype=np.int64)
    with np.errstate(invalid="ignore"):  # indices of no image are whatever they are on a GPU
        first = check.cast(indices, check.INT64)[:, None] * shape[1] + channels
    return (first * (shape[2] * shape[3]))[:, :, None, None]


@for_every_array
def ROIPooling(  # noqa: N802 - MXNet's name
    data: ArrayT,
    rois: Any,
    pooled_size: Sequence[int],
    spatial_scale: float,
    *,
    return_argmax: bool = False,
    name: str | None = None,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Max ROI pooling as ``mxnet.nd.ROIPooling``.

    Parameters
    ----------
    spatial_scale : float
        Map cells per image pixel, from 0 to 1, kept in float32.
    return_argmax : bool
        Also return the operator's hidden second output, which the backward needs.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns). The argmax is int64, indices of the flat `data`; -1 for none.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mxnet
    >>> data = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> mxnet.ROIPooling(data, [[0, 1, 1, 3, 3]], (2, 2), 1.0)
    array([[[[13., 14.],
             [18., 19.]]]], dtype=float32)
    """
    with Call(FORM, data=data, rois=rois) as call:
        _mxnet_deformable.check_name(name)
        placed = Definition("roi_pool", _scale(spatial_scale))
        size = _pair(pooled_size)
        maps, regions, pooling = call.checked_forward(placed, size, rules=CELLS_FROM_LOWEST_FLOAT32)
        want_argmax = check.flag("return_argmax", return_argmax)
        pooled, argmax = call.maximum(maps, regions, pooling, return_argmax=want_argmax)
        if not want_argmax:
            return pooled
        return pooled, _absolute(call.library, argmax, regions.batch_indices, maps.shape)


@for_every_array
def ROIPooling_backward(  # noqa: N802
    out_grad: ArrayT, argmax: ArrayT, rois: Any, data_shape: Sequence[int]
) -> ArrayT:
    """Return the gradient of :func:`ROIPooling` with respect to `data` (zero for `rois`).

    Parameters
    ----------
    argmax : ndarray of int
        The argmax from the forward: indices of the flat data.
    """
    with Call(FORM, out_grad=out_grad, argmax=argmax, rois=rois) as call:
        checked = call.checked_backward(
            Definition("roi_pool"), data_shape, rules=CELLS_FROM_LOWEST_FLOAT32
        )
        gradient, regions, pooling, shape = checked
        places = check.same_shape("argmax", argmax, gradient)
        dtype = check.dtype_of(places)
        if dtype.kind != "i":
            raise TypeError(f"argmax must be a signed integer array, got {dtype}")
        library = call.library
        first = _first_places(library, regions.batch_indices, shape)
        cells, where = check.cast(places, check.INT64) - first, library.xp().where
        # The place before a plane is wrong, although -1 says that there is none.
        cells = where(cells < 0, np.int64(-2), cells)
        cells = where(places < 0, np.int64(-1), cells)
        known = library.checked_values(cells)
        if known is not None and not np.all((known >= -1) & (known < shape[2] * shape[3])):
            raise ValueError("argmax must name places in the planes of its boxes' images")
        return call.maximum_backward(gradient, cells, regions, pooling, shape)


def _align(
    spatial_scale: float, sample_ratio: int, position_sensitive: bool, aligned: bool
) -> Definition:
    scale = _scale(spatial_scale)
    placed = conventions.roi_align_definition(scale, sample_ratio, aligned, name="sample_ratio")
    is_sensitive = check.flag("position_sensitive", position_sensitive)
    return placed._replace(group_size=conventions.EACH_BIN) if is_sensitive else placed


@for_every_array
def contrib_ROIAlign(  # noqa: N802
    data: ArrayT,
    rois: Any,
    pooled_size: Sequence[int],
    spatial_scale: float,
    sample_ratio: int = -1,
    position_sensitive: bool = False,
    aligned: bool = False,
    *,
    name: str | None = None,
) -> ArrayT:
    """Average ROI align as ``mxnet.nd.contrib.ROIAlign``.

    Parameters
    ----------
    spatial_scale : float
        Map cells per image pixel, from 0 to 1, kept in float32.
    sample_ratio : int
        Samples per bin and axis; 0 or less is adaptive.
    position_sensitive : bool
        Bin (row, column) of output channel c reads input channel
        ``(c * rows + row) * columns + column``.
    aligned : bool
        Shift by half a cell. (The original aborts on an empty box then.)

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns); C / (rows * columns) channels if `position_sensitive`.

    Notes
    -----
    Cells with a weight of exactly 0 are not read: see :func:`roipool.compat.torchvision.roi_align`.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mxnet
    >>> data = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> mxnet.contrib_ROIAlign(data, [[0, 1, 1, 3, 3]], (2, 2), 1.0, 2)
    array([[[[10., 11.],
             [15., 16.]]]], dtype=float32)
    """
    with Call(FORM, data=data, rois=rois) as call:
        _mxnet_deformable.check_name(name)
        placed = _align(spatial_scale, sample_ratio, position_sensitive, aligned)
        return call.averages(call.request(placed, _pair(pooled_size)))


@for_every_array
def contrib_ROIAlign_backward(  # noqa: N802
    out_grad: ArrayT,
    rois: Any,
    data_shape: Sequence[int],
    spatial_scale: float,
    sample_ratio: int = -1,
    position_sensitive: bool = False,
    aligned: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`contrib_ROIAlign` with respect to `data` (zero for `rois`)."""
    with Call(FORM, out_grad=out_grad, rois=rois) as call:
        placed = _align(spatial_scale, sample_ratio, position_sensitive, aligned)
        return call.average_backward(*call.checked_backward(placed, data_shape))


@for_every_array
def contrib_PSROIPooling(  # noqa: N802
    data: ArrayT,
    rois: Any,
    spatial_scale: float,
    output_dim: int,
    pooled_size: int,
    group_size: int = 0,
    *,
    name: str | None = None,
) -> ArrayT:
    """Position-sensitive ROI pooling like ``mxnet.contrib.PSROIPooling``: R-FCN's rule.

    Parameters
    ----------
    data : ndarray
        Maps, shape (N, output_dim * groups * groups, H, W).
    rois : array_like
        Shape (K, 5): batch index, x1, y1, x2, y2 in image pixels.
    spatial_scale : float
        Map cells per image pixel, from 0 to 1.
    pooled_size : int
        Bins, down and across.
    group_size : int
        Groups of bins, down and across; 0: as many as bins.

    Returns
    -------
    ndarray
        Shape (K, output_dim, pooled_size, pooled_size).

    See Also
    --------
    roipool.ps_roi_pool : The same rule.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mxnet
    >>> data = np.arange(1, 101, dtype=np.float32).reshape(1, 4, 5, 5)
    >>> mxnet.contrib_PSROIPooling(data, [[0, 0, 0, 3, 3]], 1.0, 1, 2)
    array([[[[ 4., 31.],
             [64., 91.]]]], dtype=float32)
    """
    with Call(FORM, data=data, rois=rois) as call:
        _mxnet_deformable.check_name(name)
        placed, size = _position_sensitive(spatial_scale, pooled_size, group_size)
        maps, regions, pooling = call.checked_forward(placed, size)
        conventions.check_output_dim(output_dim, "data", maps.shape[1], pooling)
        return call.average([maps], regions, pooling)


@for_every_array
def contrib_PSROIPooling_backward(  # noqa: N802
    out_grad: ArrayT,
    rois: Any,
    data_shape: Sequence[int],
    spatial_scale: float,
    output_dim: int,
    pooled_size: int,
    group_size: int = 0,
) -> ArrayT:
    """Return the gradient of :func:`contrib_PSROIPooling` for `data` (zero for `rois`)."""
    with Call(FORM, out_grad=out_grad, rois=rois) as call:
        placed, size = _position_sensitive(spatial_scale, pooled_size, group_size)
        gradient, regions, pooling, shape = call.checked_backward(placed, data_shape)
        conventions.check_bins("out_grad", gradient, size, "pooled_size")
        conventions.check_output_dim(output_dim, "data", shape[1], pooling)
        return call.average_backward(gradient, regions, pooling, shape)


def _position_sensitive(
    spatial_scale: float, pooled_size: int, group_size: int
) -> tuple[Definition, tuple[int, int]]:
    """Return the definition, and the rows and columns of bins."""
    groups = check.sampling_pair("group_size", group_size)
    placed = Definition("ps_roi_pool", _scale(spatial_scale), group_size=groups)
    return placed, check.size_pair("pooled_size", pooled_size)


@for_every_array
def contrib_RROIAlign(  # noqa: N802
    data: ArrayT,
    rois: Any,
    pooled_size: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int = -1,
    *,
    name: str | None = None,
) -> ArrayT:
    """Average ROI align of rotated boxes as ``mxnet.nd.contrib.RROIAlign``.

    Parameters
    ----------
    rois : array_like
        Shape (K, 6): batch index (cut to a whole number), centre x, centre y, width, height in
        image pixels, and the angle in degrees, counter-clockwise in the displayed image. Boxes are
        not shifted, and at least one cell long.
    spatial_scale : float
        Map cells per image pixel, from 0 to 1, kept in float32.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mxnet
    >>> data = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> mxnet.contrib_RROIAlign(data, [[0, 2, 2, 2, 2, 90]], (2, 2), 1.0, 2)
    array([[[[15., 10.],
             [16., 11.]]]], dtype=float32)
    """
    with Call(ROTATED_FORM, data=data, rois=rois) as call:
        _mxnet_deformable.check_name(name)
        placed = _rotated.definition(_scale(spatial_scale), sampling_ratio, False)
        return call.averages(call.request(placed, _pair(pooled_size)))


@for_every_array
def contrib_RROIAlign_backward(  # noqa: N802
    out_grad: ArrayT,
    rois: Any,
    data_shape: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int = -1,
) -> ArrayT:
    """Return the gradient of :func:`contrib_RROIAlign` with respect to `data`, which MXNet lacks.

    Returns
    -------
    ndarray
        Shape `data_shape`: the derivative of the forward.
    """
    with Call(ROTATED_FORM, out_grad=out_grad, rois=rois) as call:
        placed = _rotated.definition(_scale(spatial_scale), sampling_ratio, False)
        return call.average_backward(*call.checked_backward(placed, data_shape))


@for_every_array
@publishes_gradient("maxidx_x", "maxidx_y")
def ROIAlign(  # noqa: N802
    data: ArrayT,
    rois: Any,
    pooled_size: Sequence[int],
    spatial_scale: float,
    *,
    return_argmax: bool = False,
    name: str | None = None,
) -> ArrayT | tuple[ArrayT, ArrayT, ArrayT]:
    """Max ROI align as the older ``ROIAlign`` operator for MXNet (Elaine Bao's).

    Samples are one cell apart, from the start of each bin. Boxes are one cell longer than their
    coordinates, and may be empty. A corner beyond the last row or column is dropped.

    Parameters
    ----------
    spatial_scale : float
        Map cells per image pixel, from 0 to 1, kept in float32.
    return_argmax : bool
        Also return the operator's hidden outputs, which the backward needs.

    Returns
    -------
    ndarray or (ndarray, ndarray, ndarray)
        Shape (K, C, rows, columns). The others are column and row of the winning sample, as real
        numbers in map cells; -1 for none, 0 for a box outside the batch.

    Notes
    -----
    NaN and infinite boxes are empty. TuSimple's operator of the same name, which samples at
    thirds of the bin, is a different one.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mxnet
    >>> data = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> mxnet.ROIAlign(data, [[0, 1, 1, 3, 3]], (2, 2), 1.0)
    array([[[[13. , 14.5],
             [20.5, 22. ]]]], dtype=float32)
    """
    with Call(FORM, data=data, rois=rois) as call:
        _mxnet_deformable.check_name(name)
        placed = Definition("mxnet_roi_align", _scale(spatial_scale))
        size = _pair(pooled_size)
        maps, regions, pooling = call.checked_forward(placed, size, rules=FROM_LOWEST_FLOAT32)
        want_argmax = check.flag("return_argmax", return_argmax)
        pooled, argmax = call.maximum(maps, regions, pooling, return_argmax=want_argmax)
        if not want_argmax:
            return pooled
        y, x = call.argmax_positions(argmax, regions, pooling, maps.shape)
        where, real, nobody = call.library.xp().where, conventions.scalar_of(x), argmax < 0
        of_no_image = conventions.of_no_image(regions.batch_indices, maps.shape[0])
        nowhere = where(of_no_image[:, None, None, None], real(0), real(-1))
        return pooled, where(nobody, nowhere, x), where(nobody, nowhere, y)


@for_every_array
def ROIAlign_backward(  # noqa: N802
    out_grad: ArrayT,
    maxidx_x: ArrayT,
    maxidx_y: ArrayT,
    rois: Any,
    data_shape: Sequence[int],
    spatial_scale: float,
    *,
    exact_gradient: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`ROIAlign` with respect to `data`, as the original gathers it.

    The original rounds a box outwards and then visits its bins cell by cell. Its bins differ from
    those of the forward, and the gradient of an argmax in a bin that it misses is lost.

    Parameters
    ----------
    maxidx_x, maxidx_y : ndarray
        The positions of the argmax from the forward.
    exact_gradient : bool
        Distribute every gradient by the forward's weights: the derivative of the forward.
    """
    with Call(FORM, out_grad=out_grad, maxidx_x=maxidx_x, maxidx_y=maxidx_y, rois=rois) as call:
        definition = Definition("mxnet_roi_align", _scale(spatial_scale))
        gradient, regions, pooling, shape = call.checked_backward(definition, data_shape)
        x = check.same_shape("maxidx_x", maxidx_x, gradient)
        y = check.same_shape("maxidx_y", maxidx_y, gradient)
        exact = check.flag("exact_gradient", exact_gradient)
        numbers = call.argmax_at(y, x, regions, pooling, shape)
        if not exact:
            gather = definition._replace(name="mxnet_roi_align_gather")
            pooling = pooling._replace(definition=gather)
        return call.maximum_backward(gradient, numbers, regions, pooling, shape)
