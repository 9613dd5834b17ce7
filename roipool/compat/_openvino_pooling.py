"""OpenVINO's ``ROIPooling`` and ``PSROIPooling``: see `roipool.compat.openvino`."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from roipool import _arguments as check
from roipool import _boxes
from roipool._arrays import Array
from roipool._boxes import Form, Regions
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._pooling import Call
from roipool._request import MaxRules, Pooling
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions

Method: TypeAlias = Literal["max", "bilinear"]
PSMode: TypeAlias = Literal["average", "bilinear"]
_METHODS: tuple[Method, ...] = get_args(Method)
_PS_MODES: tuple[PSMode, ...] = get_args(PSMode)
_CELLS = MaxRules(argmax_is_cell=True)


def _listed_boxes(rois: Any, _: None, images: int, dtype: np.dtype[Any], form: Form) -> Regions:
    """Return boxes of shape (K, 5); from a batch index of -1 on, they are of no image."""
    shape = "(K, 5): batch index, x1, y1, x2, y2"
    table = _boxes.box_table(form.boxes, rois, (5,), shape)
    xp, real = conventions.library_of(table).xp(), conventions.scalar_of(table)
    ends = xp.trunc(check.cast(table[:, 0], check.FLOAT64)) == -1
    is_listed = xp.cumsum(check.cast(ends, check.INT64)) == 0
    is_column = xp.arange(5) == 0
    # Only listed boxes must have an image.
    checked = xp.where(is_listed[:, None] | ~is_column, table, real(0))
    regions = conventions.numbered_boxes(checked, None, images, dtype, form)
    indices = regions.batch_indices
    return regions._replace(
        batch_indices=xp.where(is_listed, indices, conventions.scalar_of(indices)(-1))
    )


POOL_FORM = Form(boxes="coords", features="input", read=_listed_boxes)
PS_FORM = POOL_FORM._replace(size="group_size")


def _pool(method: str, spatial_scale: float) -> Definition:
    scale = conventions.float32_number("spatial_scale", spatial_scale)
    if check.choice("method", method, _METHODS) == "bilinear":
        return Definition("crop_bilinear")
    return Definition("openvino_roi_pool", scale)


@for_every_array
def ROIPooling(  # noqa: N802 - OpenVINO's name
    input: ArrayT,
    coords: Any,
    output_size: Sequence[int],
    spatial_scale: float,
    method: Method = "max",
) -> ArrayT:
    """ROI pooling, or crops, as the OpenVINO operation of opsets 1 and 2.

    Parameters
    ----------
    coords : array_like
        Shape (K, 5): batch index (truncated to an integer), x1, y1, x2, y2 in image pixels; with
        "bilinear" as fractions of the map. A batch index of -1 ends the list: this box and all
        later ones are pooled to 0.
    output_size : (int, int)
        Bins: rows and columns.
    spatial_scale : float
        Map cells per image pixel, kept in float32; "bilinear" does not use it.
    method : {"max", "bilinear"}
        Maximum of whole cells, or one interpolated sample per bin, where 0 is outside the map.

    Notes
    -----
    A maximum ignores NaN: a bin of NaN only is minus infinity. In OpenVINO it is NaN if the first
    cell of the bin is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import openvino
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> openvino.ROIPooling(input, [[0, 1, 1, 3, 3]], (2, 2), 1.0)
    array([[[[13., 14.],
             [18., 19.]]]], dtype=float32)
    """
    with Call(POOL_FORM, input=input, coords=coords) as call:
        checked = call.checked_forward(_pool(method, spatial_scale), output_size, rules=_CELLS)
        maps, regions, pooling = checked
        if method == "bilinear":
            return call.average([maps], regions, pooling)
        return call.maximum(maps, regions, pooling, return_argmax=False)[0]


@for_every_array
def ROIPooling_backward(  # noqa: N802
    grad_output: ArrayT,
    input: ArrayT,
    coords: Any,
    spatial_scale: float,
    method: Method = "max",
) -> ArrayT:
    """Return the gradient of :func:`ROIPooling` with respect to `input`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, rows, columns), in the dtype of `input`.

    Returns
    -------
    ndarray
        The shape of `input`.
    """
    with Call(POOL_FORM, grad_output=grad_output, input=input, coords=coords) as call:
        checked = call.checked_backward_boxes(_pool(method, spatial_scale), rules=_CELLS)
        gradient, (maps,), regions, pooling = checked
        if method == "bilinear":
            return call.average_backward(gradient, regions, pooling, maps.shape)
        _, argmax = call.maximum(maps, regions, pooling)
        return call.maximum_backward(gradient, argmax, regions, pooling, maps.shape)


# ---- Position-sensitive


def _position_sensitive(
    spatial_scale: float, spatial_bins_x: int, spatial_bins_y: int, mode: str
) -> Definition:
    """Return the definition, whose groups are bins in mode "average", and else parts of a box."""
    scale = conventions.float32_number("spatial_scale", spatial_scale)
    across, _ = check.size_pair("spatial_bins_x", spatial_bins_x)
    down, _ = check.size_pair("spatial_bins_y", spatial_bins_y)
    if check.choice("mode", mode, _PS_MODES) == "average":
        return Definition("ps_roi_pool", scale, group_size=conventions.EACH_BIN)
    crops = conventions.TENSORFLOW_CROPS["bilinear"]
    return crops._replace(scale=scale, group_size=(down, across))


def _half_away(xp: Any, numbers: Array) -> Array:
    """Round to the nearest whole number, halves away from zero, exactly."""
    whole, real = xp.trunc(numbers), conventions.scalar_of(numbers)
    away = xp.where(xp.abs(numbers - whole) >= real(0.5), real(1), real(0))
    return xp.where(numbers < 0, whole - away, whole + away)


def _rounded_like_core(regions: Regions) -> Regions:
    """Return boxes that `ps_roi_pool` rounds as OpenVINO rounds the given ones.

    It rounds the last pixel, and then adds one; OpenVINO adds one, and then rounds.
    """
    boxes = regions.boxes
    xp, one = conventions.library_of(boxes).xp(), conventions.scalar_of(boxes)(1)
    with np.errstate(invalid="ignore", over="ignore"):
        ends = _half_away(xp, boxes + one) - one
    return regions._replace(boxes=xp.where(xp.arange(4) >= 2, ends, boxes))


def _parts_of_boxes(regions: Regions, pooling: Pooling) -> tuple[Regions, Pooling]:
    """Return the parts of boxes, each a box of the image that holds the part's channels.

    Images of all channels are read as images of the channels of one part: the same memory.
    """
    down, across = pooling.group_size
    xp, indices = conventions.library_of(regions.boxes).xp(), regions.batch_indices
    with np.errstate(invalid="ignore", over="ignore"):
        corners = conventions.in_map_cells(regions.boxes, pooling.definition.scale, False)
        columns = _cut(corners[:, 0], corners[:, 2], across)
        rows = _cut(corners[:, 1], corners[:, 3], down)
    boxes = [
        xp.stack([left, top, right, bottom], axis=1)
        for top, bottom in rows
        for left, right in columns
    ]
    images = [
        xp.where(indices < 0, indices, indices * len(boxes) + part) for part in range(len(boxes))
    ]
    single = pooling.definition._replace(scale=1.0, group_size=(1, 1))
    cut = Regions(xp.stack(boxes, axis=1).reshape(-1, 4), xp.stack(images, axis=1).reshape(-1))
    return cut, pooling._replace(definition=single)


def _cut(first: Array, last: Array, parts: int) -> list[tuple[Array, Array]]:
    """Return both ends of each part of sides, as OpenVINO rounds them."""
    real = conventions.scalar_of(first)
    length = (last - first) / real(parts)
    ends = [first + length * real(part) for part in range(parts + 1)]
    return list(itertools.pairwise(ends))


def _computed(array: Array) -> Array:
    """Return maps or a gradient in a type in which sums of crops are not rounded early."""
    small = check.dtype_of(array).itemsize < check.FLOAT32.itemsize
    return check.cast(array, check.FLOAT32) if small else array


@for_every_array
def PSROIPooling(  # noqa: N802 - OpenVINO's name
    input: ArrayT,
    coords: Any,
    output_dim: int,
    group_size: int,
    spatial_scale: float,
    spatial_bins_x: int = 1,
    spatial_bins_y: int = 1,
    mode: PSMode = "average",
) -> ArrayT:
    """Position-sensitive ROI pooling, or crops, as the OpenVINO operation of opset 1.

    Parameters
    ----------
    input : ndarray
        Maps, shape (N, C, H, W), where C is output_dim * group_size * group_size; with "bilinear"
        it is spatial_bins_y * spatial_bins_x * output_dim.
    coords : array_like
        Shape (K, 5): batch index (truncated to an integer), x1, y1, x2, y2 in image pixels. A batch
        index of -1 ends the list: this box and all later ones are pooled to 0.
    group_size : int
        Bins, down and across.
    spatial_scale : float
        Map cells per image pixel, kept in float32. With "bilinear" it makes coordinates fractions
        of the map.
    spatial_bins_x, spatial_bins_y : int
        With "bilinear" the parts of a box, across and down; "average" does not use them.
    mode : {"average", "bilinear"}
        The mean of whole cells, of which each bin has its own channels; or the mean of the crops of
        all parts of a box, each from its own channels.

    Returns
    -------
    ndarray
        Shape (K, output_dim, group_size, group_size).

    See Also
    --------
    roipool.ps_roi_pool : The mean of whole cells, of boxes whose last pixel is rounded before one
        is added.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import openvino
    >>> input = np.arange(1, 101, dtype=np.float32).reshape(1, 4, 5, 5)
    >>> openvino.PSROIPooling(input, [[0, 0, 0, 3, 3]], 1, 2, 1.0)
    array([[[[ 4., 31.],
             [64., 91.]]]], dtype=float32)
    """
    with Call(PS_FORM, input=input, coords=coords) as call:
        placed = _position_sensitive(spatial_scale, spatial_bins_x, spatial_bins_y, mode)
        maps, regions, pooling = call.checked_forward(placed, group_size)
        conventions.check_output_dim(output_dim, "input", maps.shape[1], pooling)
        if mode == "average":
            return call.average([maps], _rounded_like_core(regions), pooling)
        (images, _, *size), parts = maps.shape, math.prod(pooling.group_size)
        of_parts = _computed(maps).reshape(images * parts, output_dim, *size)
        crops = call.average([of_parts], *_parts_of_boxes(regions, pooling))
        crops = crops.reshape(regions.boxes.shape[0], parts, *crops.shape[1:])
        total = functools.reduce(operator.add, (crops[:, part] for part in range(parts)))
        return check.cast(total / conventions.scalar_of(crops)(parts), check.dtype_of(maps))


@for_every_array
def PSROIPooling_backward(  # noqa: N802
    grad_output: ArrayT,
    coords: Any,
    input_shape: Sequence[int],
    output_dim: int,
    group_size: int,
    spatial_scale: float,
    spatial_bins_x: int = 1,
    spatial_bins_y: int = 1,
    mode: PSMode = "average",
) -> ArrayT:
    """Return the gradient of :func:`PSROIPooling` with respect to `input`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, output_dim, group_size, group_size).
    """
    with Call(PS_FORM, grad_output=grad_output, coords=coords) as call:
        placed = _position_sensitive(spatial_scale, spatial_bins_x, spatial_bins_y, mode)
        gradient, regions, pooling, shape = call.checked_backward(placed, input_shape)
        size = check.size_pair("group_size", group_size)
        conventions.check_bins("grad_output", gradient, size, "group_size")
        conventions.check_output_dim(output_dim, "input", shape[1], pooling)
        if mode == "average":
            return call.average_backward(gradient, _rounded_like_core(regions), pooling, shape)
        parts = math.prod(pooling.group_size)
        computed, xp = _computed(gradient), call.library.xp()
        share = computed / conventions.scalar_of(computed)(parts)
        shares = xp.stack([share] * parts, axis=1)
        shares = shares.reshape(gradient.shape[0] * parts, *gradient.shape[1:])
        of_parts = shape[0] * parts, shape[1] // parts, shape[2], shape[3]
        result = call.average_backward(shares, *_parts_of_boxes(regions, pooling), of_parts)
        return check.cast(result.reshape(shape), check.dtype_of(gradient))
