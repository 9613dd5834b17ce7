"""Paddle's ``vision.ops``: its ROI operations, their layers, and the levels of boxes.

Boxes are in the order of their images; `boxes_num` is the number of boxes of each image. If
the counts do not add up to the number of boxes, Paddle reads out of bounds; here this is a
ValueError. On a GPU counts are not checked: boxes beyond them are pooled to 0 and have no
gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from roipool import _arguments as check
from roipool import _boxes, _levels
from roipool._arrays import Array
from roipool._boxes import Form, Regions
from roipool._definitions import Definition
from roipool._dtypes import real_dtype
from roipool._front_ends import for_every_array
from roipool._gradients import publishes_gradient
from roipool._pooling import Call
from roipool._request import MaxRules
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat._layers import Layer


def _regions(boxes: Any, boxes_num: Any, images: int, dtype: np.dtype[Any], form: Form) -> Regions:
    """Return boxes of shape (K, 4), with the image of each by the counts."""
    table = _boxes.box_table(form.boxes, boxes, (4,), "(K, 4): x1, y1, x2, y2")
    counts = check.number_array(form.indices, boxes_num)
    if tuple(counts.shape) != (images,) or check.dtype_of(counts).kind not in "iu":
        raise ValueError(
            f"{form.indices} must hold {images} integers, one for each image, got "
            f"{check.dtype_of(counts)} of shape {tuple(counts.shape)}"
        )
    indices = _image_of_each(form.indices, counts, table.shape[0])
    return Regions(_boxes.coordinates(table, dtype), indices)


def _image_of_each(name: str, counts: Array, boxes: int) -> Array:
    """Return the image of each box, from how many boxes each image has."""
    library = conventions.library_of(counts)
    checked = library.checked_values(counts)
    # A sum of Python's integers, which cannot overflow.
    if checked is not None and (np.any(checked < 0) or sum(checked.tolist()) != boxes):
        raise ValueError(
            f"{name} must not be negative, and add up to the {boxes} boxes, got {checked}"
        )
    xp = library.xp()
    ends = xp.cumsum(check.cast(counts, check.INT64))
    return xp.searchsorted(ends, xp.arange(boxes, dtype=np.int64), side="right")


FORM = Form(boxes="boxes", indices="boxes_num", features="x", read=_regions)


def _align(
    spatial_scale: float, sampling_ratio: int, aligned: bool, name: str = "paddle_roi_align"
) -> Definition:
    scale = conventions.float32_number("spatial_scale", spatial_scale)
    return conventions.roi_align_definition(scale, sampling_ratio, aligned, definition=name)


@for_every_array
@publishes_gradient()
def roi_align(
    x: ArrayT,
    boxes: Any,
    boxes_num: Any,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = True,
) -> ArrayT:
    """ROI align as ``paddle.vision.ops.roi_align``.

    Parameters
    ----------
    boxes : array_like
        Shape (K, 4): x1, y1, x2, y2 in image pixels, in the order of the images.
    boxes_num : array_like of int
        Shape (N,): how many boxes each image has.
    aligned : bool
        Shift by half a cell, and leave boxes shorter than a cell as they are.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns). NaN for a box whose adaptive grid has no samples, as on
        Paddle's CPU: one that is flat along a side, if aligned, or not finite.

    Notes
    -----
    A cell whose weight in a sample is exactly 0 is not read. Paddle reads it times 0: where it is
    NaN or infinite, the average is NaN there. An aligned box that is reversed ends Paddle's process
    if the grid is adaptive; here it is NaN, as a flat one.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import paddle
    >>> x = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> paddle.roi_align(x, [[1, 1, 3, 3]], [1], 2)
    array([[[[ 7.,  8.],
             [12., 13.]]]], dtype=float32)
    """
    with Call(FORM, x=x, boxes=boxes, boxes_num=boxes_num) as call:
        placed = _align(spatial_scale, sampling_ratio, aligned)
        maps, regions, pooling = call.checked_forward(placed, output_size)
        pooled = call.average([maps], regions, pooling)
        return conventions.nan_without_samples(pooled, regions, pooling)


@for_every_array
def roi_align_backward(
    grad_output: ArrayT,
    boxes: Any,
    boxes_num: Any,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = True,
    *,
    exact_gradient: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`roi_align` by `x`, as Paddle computes it.

    In the backward the sides of aligned boxes are at least one cell long: a shorter box has the
    gradient of a larger one.

    Parameters
    ----------
    exact_gradient : bool
        Return the derivative of the forward, where aligned boxes may be shorter than a cell.
    """
    with Call(FORM, grad_output=grad_output, boxes=boxes, boxes_num=boxes_num) as call:
        exact = check.flag("exact_gradient", exact_gradient)
        name = "paddle_roi_align" if exact else "roi_align"
        placed = _align(spatial_scale, sampling_ratio, aligned, name)
        gradient, regions, pooling, shape = call.checked_backward(placed, input_shape)
        if not exact:
            regions, pooling = conventions.held_at_one_cell(regions, pooling)
        return call.average_backward(gradient, regions, pooling, shape)


@dataclass(eq=False, repr=False)
class RoIAlign(Layer):
    """``paddle.vision.ops.RoIAlign``: :func:`roi_align` as a class, always adaptive."""

    output_size: int | Sequence[int]
    spatial_scale: float = 1.0

    def forward(self, x: ArrayT, boxes: Any, boxes_num: Any, aligned: bool = True) -> ArrayT:
        """Pool `boxes` from `x`."""
        return roi_align(x, boxes, boxes_num, self.output_size, self.spatial_scale, aligned=aligned)

    if TYPE_CHECKING:
        __call__ = forward


@for_every_array
def roi_pool(
    x: ArrayT,
    boxes: Any,
    boxes_num: Any,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    return_argmax: bool = False,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Max ROI pooling as ``paddle.vision.ops.roi_pool``.

    Parameters
    ----------
    boxes, boxes_num
        As in :func:`roi_align`.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns); 0 for an empty bin, the lowest number of the type for a bin of
        NaN only. The argmax is int32, ``y * W + x``; -1 for none.

    Notes
    -----
    For float64 maps Paddle computes the edges of bins in float32, here they are computed in
    float64: edges of boxes dozens of cells long may differ by a cell.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import paddle
    >>> x = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> paddle.roi_pool(x, [[1, 1, 3, 3]], [1], 2)
    array([[[[13., 14.],
             [18., 19.]]]], dtype=float32)
    """
    with Call(FORM, x=x, boxes=boxes, boxes_num=boxes_num) as call:
        scale = conventions.float32_number("spatial_scale", spatial_scale)
        checked = call.checked_forward(Definition("roi_pool", scale), output_size)
        maps, regions, pooling = checked
        lowest = float(np.finfo(real_dtype(check.dtype_of(maps))).min)
        pooling = pooling._replace(rules=MaxRules(lowest=lowest, argmax_is_cell=True))
        want_argmax = check.flag("return_argmax", return_argmax)
        pooled, argmax = call.maximum(maps, regions, pooling, return_argmax=want_argmax)
        return (pooled, argmax) if want_argmax else pooled


@for_every_array
def roi_pool_backward(
    grad_output: ArrayT, argmax: ArrayT, boxes: Any, boxes_num: Any, input_shape: Sequence[int]
) -> ArrayT:
    """Return the gradient of :func:`roi_pool` with respect to `x`."""
    with Call(
        FORM, grad_output=grad_output, argmax=argmax, boxes=boxes, boxes_num=boxes_num
    ) as call:
        checked = call.checked_backward(
            Definition("roi_pool"), input_shape, rules=MaxRules(argmax_is_cell=True)
        )
        gradient, regions, pooling, shape = checked
        return call.maximum_backward(gradient, argmax, regions, pooling, shape)


@dataclass(eq=False, repr=False)
class RoIPool(Layer):
    """``paddle.vision.ops.RoIPool``: :func:`roi_pool` as a class."""

    output_size: int | Sequence[int]
    spatial_scale: float = 1.0

    def forward(self, x: ArrayT, boxes: Any, boxes_num: Any) -> ArrayT:
        """Pool `boxes` from `x`."""
        pooled = roi_pool(x, boxes, boxes_num, self.output_size, self.spatial_scale)
        assert not isinstance(pooled, tuple)
        return pooled

    if TYPE_CHECKING:
        __call__ = forward


@for_every_array
def psroi_pool(
    x: ArrayT,
    boxes: Any,
    boxes_num: Any,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
) -> ArrayT:
    """Position-sensitive ROI pooling as ``paddle.vision.ops.psroi_pool``: R-FCN's rule.

    Parameters
    ----------
    x : ndarray
        Maps, shape (N, C * rows * columns, H, W).
    boxes, boxes_num, output_size, spatial_scale
        As in :func:`roi_align`.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns). Paddle refuses C = 1.

    Raises
    ------
    ValueError
        If `x` has no multiple of rows * columns channels.

    See Also
    --------
    roipool.ps_roi_pool : The same rule.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import paddle
    >>> x = np.arange(1, 101, dtype=np.float32).reshape(1, 4, 5, 5)
    >>> paddle.psroi_pool(x, [[0, 0, 3, 3]], [1], 2)
    array([[[[ 4., 31.],
             [64., 91.]]]], dtype=float32)
    """
    with Call(FORM, x=x, boxes=boxes, boxes_num=boxes_num) as call:
        return call.averages(call.request(_position_sensitive(spatial_scale), output_size))


@for_every_array
def psroi_pool_backward(
    grad_output: ArrayT,
    boxes: Any,
    boxes_num: Any,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
) -> ArrayT:
    """Return the gradient of :func:`psroi_pool` with respect to `x`.

    Parameters
    ----------
    input_shape : sequence of int
        (N, C * rows * columns, H, W).
    """
    with Call(FORM, grad_output=grad_output, boxes=boxes, boxes_num=boxes_num) as call:
        placed = _position_sensitive(spatial_scale)
        return call.average_backward(*call.checked_backward(placed, input_shape))


def _position_sensitive(spatial_scale: float) -> Definition:
    scale = conventions.float32_number("spatial_scale", spatial_scale)
    return Definition("ps_roi_pool", scale, group_size=conventions.EACH_BIN)


@dataclass(eq=False, repr=False)
class PSRoIPool(Layer):
    """``paddle.vision.ops.PSRoIPool``: :func:`psroi_pool` with fixed options."""

    output_size: int | Sequence[int]
    spatial_scale: float = 1.0

    def forward(self, x: ArrayT, boxes: Any, boxes_num: Any) -> ArrayT:
        """Pool `boxes` from `x`."""
        return psroi_pool(x, boxes, boxes_num, self.output_size, self.spatial_scale)

    if TYPE_CHECKING:
        __call__ = forward


@for_every_array
def distribute_fpn_proposals(
    fpn_rois: Any,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: float,
    pixel_offset: bool = False,
    rois_num: Any = None,
) -> tuple[list[ArrayT], ArrayT, list[ArrayT] | None]:
    """Divide boxes among the levels of a pyramid, as ``paddle.vision.ops`` does.

    The level of a box is ``floor(refer_level + log2(side / refer_scale + 1e-6))``, computed in the
    boxes' type, and limited to the pyramid's levels. The side is the square root of the area.

    Parameters
    ----------
    fpn_rois : array_like
        Shape (K, 4): x1, y1, x2, y2 in image pixels, in the order of the images.
    min_level, max_level : int
        The pyramid's levels.
    refer_level : int
        Level of a box whose side is `refer_scale`.
    refer_scale : float
        In image pixels.
    pixel_offset : bool
        Whether both sides of a box are one pixel longer than the differences of coordinates.
    rois_num : array_like of int, optional
        Shape (N,): the number of boxes of each image.

    Returns
    -------
    multi_rois : list of ndarray
        The boxes of each level, in their order.
    restore_index : ndarray of int32
        Shape (K, 1): the index of each box in the concatenated boxes of all levels.
    rois_num_per_level : list of ndarray of int32, or None
        The number of boxes of each image, for each level; None without `rois_num`.

    Notes
    -----
    The area of a reversed box is 0. A box with NaN is in the lowest level. On a GPU the
    function waits for the number of boxes of each level.

    Examples
    --------
    >>> from roipool.compat import paddle
    >>> boxes = [[0, 0, 300, 300], [0, 0, 20, 20], [0, 0, 250, 250]]
    >>> multi_rois, restore_index, _ = paddle.distribute_fpn_proposals(boxes, 3, 4, 4, 224)
    >>> [len(rois) for rois in multi_rois], restore_index.ravel()
    ([1, 2], array([1, 0, 2], dtype=int32))
    """
    with Call(fpn_rois=fpn_rois, rois_num=rois_num) as call:
        table = _boxes.box_table("fpn_rois", fpn_rois, (4,), "(K, 4): x1, y1, x2, y2")
        first, last = _levels.level("min_level", min_level), _levels.level("max_level", max_level)
        if first > last:
            raise ValueError(f"min_level must be at most max_level, got {first} and {last}")
        canonical = (
            _levels.size_of_level("refer_scale", refer_scale),
            _levels.level("refer_level", refer_level),
        )
        offset = check.flag("pixel_offset", pixel_offset)
        of_each = _level_of_each(table, (first, last), canonical, offset)
        xp, levels = call.library.xp(), range(last - first + 1)
        order = xp.argsort(of_each, kind="stable")
        restore = check.cast(xp.argsort(order, kind="stable"), check.INT32)[:, None]
        multi_rois = [table[of_each == level] for level in levels]
        if rois_num is None:
            return multi_rois, restore, None
        counts = check.number_array("rois_num", rois_num)
        if counts.ndim != 1 or check.dtype_of(counts).kind not in "iu":
            raise ValueError(
                f"rois_num must be one row of integers, got {check.dtype_of(counts)} of shape "
                f"{tuple(counts.shape)}"
            )
        images = _image_of_each("rois_num", counts, table.shape[0])
        numbers = [
            xp.bincount(images[of_each == level], minlength=counts.shape[0])[: counts.shape[0]]
            for level in levels
        ]
        numbers = [check.cast(number, check.INT32) for number in numbers]
        return multi_rois, restore, numbers


def _level_of_each(
    table: Array, levels: tuple[int, int], canonical: tuple[float, int], pixel_offset: bool
) -> Array:
    """Return the index of each box's level."""
    dtype = check.dtype_of(table)
    wide = dtype.kind in "iu" or dtype.itemsize > 4
    boxes = _boxes.coordinates(table, check.FLOAT64 if wide else check.FLOAT32)
    xp, real = conventions.library_of(boxes).xp(), conventions.scalar_of(boxes)
    with np.errstate(invalid="ignore", over="ignore"):
        width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
        is_reversed = (width < 0) | (height < 0)
        sides = [
            xp.where(is_reversed, real(0), side + real(pixel_offset)) for side in (width, height)
        ]
    found = conventions.level_by_logarithm(sides[0], sides[1], levels, canonical, add_to_ratio=1e-6)
    return xp.where(found < 0, 0, found)  # of NaN
