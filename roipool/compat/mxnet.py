"""MXNet's ``ROIPooling`` and ``contrib.ROIAlign``, and the older ``ROIAlign`` for MXNet.

A box of an image that the batch does not hold pools to 0 and has no gradient. (So it is in
ROIPooling; contrib.ROIAlign overwrites other boxes' values or reads out of bounds there, and the
older operator checks negative numbers only.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._arguments import Array, Regions
from roipool._arrays import array_module, values_of
from roipool._geometry import Geometry
from roipool._layout import real_type
from roipool.compat import _steps as steps


def _boxes(rois: Any, images: int, dtype: np.dtype[Any]) -> Regions:
    return steps.numbered_boxes("rois", rois, images, dtype, unknown_image="zero")


def _scale(spatial_scale: Any) -> float:
    scale = steps.single("spatial_scale", spatial_scale)
    if not 0 <= scale <= 1:
        raise ValueError(f"spatial_scale must be from 0 to 1, got {spatial_scale}")
    return scale


def _pooled_size(pooled_size: Any) -> tuple[int, int]:
    if not isinstance(pooled_size, (tuple, list)):
        raise TypeError(f"pooled_size must be a pair of ints, got {pooled_size!r}")
    return check.size_pair("pooled_size", pooled_size)


def _absolute(argmax: Array, images: Array, shape: Sequence[int]) -> Array:
    """Return winners as places in the whole flat array of maps."""
    first = _first_places(images, shape)
    return array_module(argmax).where(argmax < 0, np.int64(-1), first + argmax)


def _first_places(images: Array, shape: Sequence[int]) -> Array:
    """Return where the planes of each box's image begin in the flat maps; (K, C, 1, 1)."""
    channels = array_module(images).arange(shape[1], dtype=np.int64)
    with np.errstate(invalid="ignore"):  # numbers of no image are whatever they are on a GPU
        first = images.astype(np.int64)[:, None] * shape[1] + channels
    return (first * (shape[2] * shape[3]))[:, :, None, None]


@steps.arrays("data", "rois")
def ROIPooling(  # noqa: N802 - MXNet's name
    data: Array,
    rois: Any,
    pooled_size: Sequence[int],
    spatial_scale: float,
    *,
    return_argmax: bool = False,
) -> Array | tuple[Array, Array]:
    """Max ROI pooling as ``mxnet.nd.ROIPooling``.

    Parameters
    ----------
    data : ndarray
        Maps, shape (N, C, H, W).
    rois : array_like
        Shape (K, 5): batch index (cut to a whole number), x1, y1, x2, y2 in image pixels.
    pooled_size : (int, int)
        Bins: rows and columns.
    spatial_scale : float
        Map cells per image pixel, from 0 to 1, kept in float32.
    return_argmax : bool
        Also return the operator's second, hidden output, which the backward needs.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns). The winners are int64 places in the flat `data`; -1 for none.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mxnet
    >>> data = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> mxnet.ROIPooling(data, [[0, 1, 1, 3, 3]], (2, 2), 1.0)
    array([[[[13., 14.],
             [18., 19.]]]], dtype=float32)
    """
    maps = check.features("data", data, "NCHW")
    regions = _boxes(rois, maps.shape[0], maps.dtype)
    geometry = Geometry("roi_pool", _scale(spatial_scale))
    size = _pooled_size(pooled_size)
    pooled, argmax = steps.pool_maximum(maps, regions, geometry, size, winner_is_cell=True)
    if not check.flag("return_argmax", return_argmax):
        return pooled
    return pooled, _absolute(argmax, regions.images, maps.shape)


@steps.speaking_of(grad_output="out_grad")
@steps.arrays("out_grad", "argmax", "rois")
def ROIPooling_backward(  # noqa: N802
    out_grad: Array, argmax: Array, rois: Any, data_shape: Sequence[int]
) -> Array:
    """Return the gradient of :func:`ROIPooling` by `data`; that by `rois` is zero.

    Parameters
    ----------
    out_grad : ndarray
        Shape (K, C, rows, columns).
    argmax : ndarray of int
        The winners from the forward: places in the flat data.
    rois : array_like
        As in the forward.
    data_shape : sequence of int
        (N, C, H, W).

    Returns
    -------
    ndarray
        Shape `data_shape`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    gradient = check.float_array("out_grad", out_grad)
    shape = check.map_shape("data_shape", data_shape, "NCHW")
    regions = _boxes(rois, shape[0], gradient.dtype)
    check.match_gradient(gradient, len(regions.boxes), shape, "NCHW")
    places = steps.same_shape("argmax", argmax, gradient)
    if places.dtype.kind != "i":
        raise TypeError(f"argmax must be a signed integer array, got {places.dtype}")
    cells = places.astype(np.int64) - _first_places(regions.images, shape)
    cells = array_module(places).where(places < 0, np.int64(-1), cells)
    known = values_of(cells)
    if known is not None and not np.all((known >= -1) & (known < shape[2] * shape[3])):
        raise ValueError("argmax must name places in the planes of its boxes' images")
    return steps.spread_maximum(gradient, cells, regions, None, shape, winner_is_cell=True)


def _align(spatial_scale: float, sample_ratio: int, aligned: bool) -> Geometry:
    return steps.align_geometry(_scale(spatial_scale), sample_ratio, aligned)


@steps.speaking_of(sampling_ratio="sample_ratio")
@steps.arrays("data", "rois")
def contrib_ROIAlign(  # noqa: N802
    data: Array,
    rois: Any,
    pooled_size: Sequence[int],
    spatial_scale: float,
    sample_ratio: int = -1,
    position_sensitive: bool = False,
    aligned: bool = False,
) -> Array:
    """Average ROI align as ``mxnet.nd.contrib.ROIAlign``.

    Parameters
    ----------
    data : ndarray
        Maps, shape (N, C, H, W).
    rois : array_like
        Shape (K, 5): batch index (cut to a whole number), x1, y1, x2, y2 in image pixels.
    pooled_size : (int, int)
        Bins: rows and columns.
    spatial_scale : float
        Map cells per image pixel, from 0 to 1, kept in float32.
    sample_ratio : int
        Samples per bin and axis; 0 or less is adaptive.
    position_sensitive : bool
        Bin (row, column) of output channel c reads input channel
        ``(c * rows + row) * columns + column``.
    aligned : bool
        Shift by half a cell. (The original aborts on a box without extent then.)

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns); C / (rows * columns) channels if `position_sensitive`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    A cell whose weight in a sample is exactly 0 is not read: the next row or column of cells where
    a sample lies exactly on cell centres along that axis, or before the map's first. The original
    reads it times 0: where it is NaN or infinite, the average is NaN there. So it is with the
    plane's first cell, which a sample outside the map reads times 0 there, and for NaN or infinite
    gradients in the backward.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mxnet
    >>> data = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> mxnet.contrib_ROIAlign(data, [[0, 1, 1, 3, 3]], (2, 2), 1.0, 2)
    array([[[[10., 11.],
             [15., 16.]]]], dtype=float32)
    """
    maps = check.features("data", data, "NCHW")
    regions = _boxes(rois, maps.shape[0], maps.dtype)
    geometry = _align(spatial_scale, sample_ratio, aligned)
    size = _pooled_size(pooled_size)
    if not check.flag("position_sensitive", position_sensitive):
        return steps.pool_average(maps, regions, geometry, size)
    outputs = _outputs(maps.shape[1], size)
    output = array_module(maps).empty((len(regions.boxes), outputs, *size), maps.dtype)
    for part in _parts(len(regions.boxes), maps.shape[1], size):
        every_bin = steps.pool_average(maps, regions.part(part), geometry, size)
        output[part] = _own_bins(every_bin, size)
    return output


def _outputs(channels: int, size: tuple[int, int]) -> int:
    bins = size[0] * size[1]
    if channels % bins:
        raise ValueError(
            f"data must have a multiple of {size[0]} x {size[1]} channels with "
            f"position_sensitive, got {channels}"
        )
    return channels // bins


def _parts(boxes: int, channels: int, size: tuple[int, int]) -> list[slice]:
    """Cut the boxes so that all bins of all channels of a part stay below 64 MiB."""
    step = max(1, 2**24 // max(1, channels * size[0] * size[1]))
    return [slice(first, first + step) for first in range(0, boxes, step)]


def _own_bins(every_bin: Array, size: tuple[int, int]) -> Array:
    """View, for each input channel, the one bin that it serves; (K, outputs, rows, columns)."""
    boxes, channels = every_bin.shape[:2]
    bins = size[0] * size[1]
    by_channel = every_bin.reshape(boxes, channels // bins, bins * bins)
    return by_channel[:, :, :: bins + 1].reshape(boxes, channels // bins, *size)


@steps.speaking_of(sampling_ratio="sample_ratio", grad_output="out_grad")
@steps.arrays("out_grad", "rois")
def contrib_ROIAlign_backward(  # noqa: N802
    out_grad: Array,
    rois: Any,
    data_shape: Sequence[int],
    spatial_scale: float,
    sample_ratio: int = -1,
    position_sensitive: bool = False,
    aligned: bool = False,
) -> Array:
    """Return the gradient of :func:`contrib_ROIAlign` by `data`; that by `rois` is zero.

    Parameters
    ----------
    out_grad : ndarray
        Gradient of the forward's result.
    rois, spatial_scale, sample_ratio, position_sensitive, aligned
        As in the forward.
    data_shape : sequence of int
        (N, C, H, W).

    Returns
    -------
    ndarray
        Shape `data_shape`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    gradient = check.float_array("out_grad", out_grad)
    shape = check.map_shape("data_shape", data_shape, "NCHW")
    regions = _boxes(rois, shape[0], gradient.dtype)
    geometry = _align(spatial_scale, sample_ratio, aligned)
    if check.flag("position_sensitive", position_sensitive):
        size = check.size_pair("out_grad's bins", gradient.shape[2:])
        outputs = (shape[0], _outputs(shape[1], size), shape[2], shape[3])
        check.match_gradient(gradient, len(regions.boxes), outputs, "NCHW")
        return _spread_own_bins(gradient, regions, geometry, shape, size)
    return steps.spread_average(gradient, regions, geometry, shape)


def _spread_own_bins(
    gradient: Array,
    regions: Regions,
    geometry: Geometry,
    shape: tuple[int, int, int, int],
    size: tuple[int, int],
) -> Array:
    """Sum, over parts of the boxes, the gradient of the one bin that each channel serves."""
    bins = size[0] * size[1]
    xp = array_module(gradient)
    total = xp.zeros(shape, real_type(gradient.dtype))
    for part in _parts(len(regions.boxes), shape[1], size):
        own = gradient[part]
        spread = xp.zeros((*own.shape[:2], bins * bins), total.dtype)
        spread[:, :, :: bins + 1] = own.reshape(*own.shape[:2], bins)
        every_bin = spread.reshape(len(own), shape[1], *size)
        total += steps.spread_average(every_bin, regions.part(part), geometry, shape)
    return total.astype(gradient.dtype, copy=False)


@steps.arrays("data", "rois")
def ROIAlign(  # noqa: N802
    data: Array,
    rois: Any,
    pooled_size: Sequence[int],
    spatial_scale: float,
    *,
    return_argmax: bool = False,
) -> Array | tuple[Array, Array, Array]:
    """Max ROI align as the older ``ROIAlign`` operator for MXNet (Elaine Bao's).

    Samples lie one cell apart from the start of each bin; boxes are one cell longer than their
    coordinates say, and may be empty; a corner beyond the last row or column is dropped.

    Parameters
    ----------
    data : ndarray
        Maps, shape (N, C, H, W).
    rois : array_like
        Shape (K, 5): batch index (cut to a whole number), x1, y1, x2, y2 in image pixels.
    pooled_size : (int, int)
        Bins: rows and columns.
    spatial_scale : float
        Map cells per image pixel, from 0 to 1, kept in float32.
    return_argmax : bool
        Also return the operator's hidden outputs, which the backward needs.

    Returns
    -------
    ndarray or (ndarray, ndarray, ndarray)
        Shape (K, C, rows, columns). The others are column and row of the winning sample, as real
        numbers in map cells; -1 for none, 0 for a box of no image.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    NaN and infinite boxes are empty. TuSimple's operator of the same name samples at thirds of
    the bin; it is not this one.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mxnet
    >>> data = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> mxnet.ROIAlign(data, [[0, 1, 1, 3, 3]], (2, 2), 1.0)
    array([[[[13. , 14.5],
             [20.5, 22. ]]]], dtype=float32)
    """
    maps = check.features("data", data, "NCHW")
    regions = _boxes(rois, maps.shape[0], maps.dtype)
    geometry = Geometry("mxnet_roi_align", _scale(spatial_scale))
    pooled, argmax = steps.pool_maximum(maps, regions, geometry, _pooled_size(pooled_size))
    if not check.flag("return_argmax", return_argmax):
        return pooled
    y, x = steps.winner_positions(argmax, regions, geometry, maps.shape)
    xp, real, nobody = array_module(argmax), x.dtype.type, argmax < 0
    of_no_image = steps.of_no_image(regions.images, maps.shape[0])[:, None, None, None]
    nowhere = xp.where(of_no_image, real(0), real(-1))
    return pooled, xp.where(nobody, nowhere, x), xp.where(nobody, nowhere, y)


@steps.speaking_of(grad_output="out_grad")
@steps.arrays("out_grad", "maxidx_x", "maxidx_y", "rois")
def ROIAlign_backward(  # noqa: N802
    out_grad: Array,
    maxidx_x: Array,
    maxidx_y: Array,
    rois: Any,
    data_shape: Sequence[int],
    spatial_scale: float,
    *,
    exact_gradient: bool = False,
) -> Array:
    """Return the gradient of :func:`ROIAlign` by `data`, as the original gathers it.

    The original visits bins by cell, in a box that it rounds outwards first: its bins are not the
    forward's, and the gradient of winners in bins that it does not visit is lost.

    Parameters
    ----------
    out_grad : ndarray
        Shape (K, C, rows, columns).
    maxidx_x, maxidx_y : ndarray
        The winners' coordinates from the forward.
    rois, spatial_scale
        As in the forward.
    data_shape : sequence of int
        (N, C, H, W).
    exact_gradient : bool
        Give every winner's corners their share: the derivative of the forward.

    Returns
    -------
    ndarray
        Shape `data_shape`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    gradient = check.float_array("out_grad", out_grad)
    shape = check.map_shape("data_shape", data_shape, "NCHW")
    regions = _boxes(rois, shape[0], gradient.dtype)
    check.match_gradient(gradient, len(regions.boxes), shape, "NCHW")
    x = steps.same_shape("maxidx_x", maxidx_x, gradient)
    y = steps.same_shape("maxidx_y", maxidx_y, gradient)
    exact = check.flag("exact_gradient", exact_gradient)
    forward = Geometry("mxnet_roi_align", _scale(spatial_scale))
    numbers = steps.winner_numbers(y, x, regions, forward, shape)
    geometry = forward if exact else forward._replace(definition="mxnet_roi_align_gather")
    return steps.spread_maximum(gradient, numbers, regions, geometry, shape)
