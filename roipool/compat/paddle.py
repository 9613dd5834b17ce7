"""Paddle's ``vision.ops.roi_pool`` and its layer ``RoIPool``.

Boxes are in the order of their images; `boxes_num` is the number of boxes of each image. If
the counts do not add up to the number of boxes, Paddle reads out of bounds; here this is a
ValueError. On a GPU counts are not checked: boxes beyond them are pooled to 0 and have no
gradient.

Paddle computes the edges of bins in float32 even for float64 maps; here they are computed in
float64. In boxes dozens of cells long an edge may differ by one cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._arguments import Form, Regions
from roipool._arrays import Array
from roipool._definitions import Definition
from roipool._dtypes import real_dtype
from roipool._pooling import Call, MaxRules
from roipool.compat import _conventions as conventions


def _regions(boxes: Any, boxes_num: Any, images: int, dtype: np.dtype[Any], form: Form) -> Regions:
    """Return boxes of shape (K, 4), with the image of each by the counts."""
    table = check.box_table(form.boxes, boxes, (4,), "(K, 4): x1, y1, x2, y2")
    counts = check.number_array(form.indices, boxes_num)
    if counts.shape != (images,) or counts.dtype.kind not in "iu":
        raise ValueError(
            f"{form.indices} must hold {images} integers, one for each image, got {counts.dtype} "
            f"of shape {counts.shape}"
        )
    library = conventions.library_of(table)
    checked = library.checked_values(counts)
    if checked is not None and (np.any(checked < 0) or checked.sum() != len(table)):
        raise ValueError(
            f"{form.indices} must not be negative, and add up to the {len(table)} boxes, "
            f"got {checked}"
        )
    xp = library.xp()
    ends = xp.cumsum(counts.astype(np.int64))
    numbers = xp.arange(len(table), dtype=np.int64)
    indices = xp.searchsorted(ends, numbers, side="right")
    return Regions(check.coordinates(table, dtype), indices)


FORM = Form(boxes="boxes", indices="boxes_num", features="x", read=_regions)


def roi_pool(
    x: Array,
    boxes: Any,
    boxes_num: Any,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    return_argmax: bool = False,
) -> Array | tuple[Array, Array]:
    """Max ROI pooling as ``paddle.vision.ops.roi_pool``.

    Parameters
    ----------
    x : ndarray
        Maps, shape (N, C, H, W).
    boxes : array_like
        Shape (K, 4): x1, y1, x2, y2 in image pixels, in the order of the images.
    boxes_num : array_like of int
        Shape (N,): how many boxes each image has.
    output_size : int or (int, int)
        Bins: rows and columns.
    spatial_scale : float
        Map cells per image pixel, kept in float32.
    return_argmax : bool
        Also return the argmax, which the backward needs.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns); 0 for an empty bin, the lowest number of the type for a bin of
        NaN only. The argmax is int32, ``y * W + x``; -1 for none.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

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
        lowest = float(np.finfo(real_dtype(maps.dtype)).min)
        pooling = pooling._replace(rules=MaxRules(lowest=lowest, argmax_is_cell=True))
        want_argmax = check.flag("return_argmax", return_argmax)
        pooled, argmax = call.maximum(maps, regions, pooling, return_argmax=want_argmax)
        return (pooled, argmax) if want_argmax else pooled


def roi_pool_backward(
    grad_output: Array, argmax: Array, boxes: Any, boxes_num: Any, input_shape: Sequence[int]
) -> Array:
    """Return the gradient of :func:`roi_pool` with respect to `x`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, rows, columns).
    argmax : ndarray of int
        The argmax from the forward.
    boxes, boxes_num
        As in the forward.
    input_shape : sequence of int
        (N, C, H, W).

    Returns
    -------
    ndarray
        Shape `input_shape`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    with Call(
        FORM, grad_output=grad_output, argmax=argmax, boxes=boxes, boxes_num=boxes_num
    ) as call:
        checked = call.checked_backward(
            Definition("roi_pool"), input_shape, rules=MaxRules(argmax_is_cell=True)
        )
        gradient, regions, pooling, shape = checked
        return call.maximum_backward(gradient, argmax, regions, pooling, shape)


class RoIPool:
    """``paddle.vision.ops.RoIPool``: :func:`roi_pool` as a class."""

    def __init__(self, output_size: int | Sequence[int], spatial_scale: float = 1.0) -> None:
        self.output_size = output_size
        self.spatial_scale = spatial_scale

    def forward(self, x: Array, boxes: Any, boxes_num: Any) -> Array:
        """Pool `boxes` from `x`."""
        pooled = roi_pool(x, boxes, boxes_num, self.output_size, self.spatial_scale)
        assert not isinstance(pooled, tuple)
        return pooled

    def __repr__(self) -> str:
        return f"RoIPool(output_size={self.output_size}, spatial_scale={self.spatial_scale})"

    __call__ = forward
