"""torchvision's ``ps_roi_pool`` and ``ps_roi_align``, which are in `roipool.compat.torchvision`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from roipool import _arguments as check
from roipool._arrays import Array
from roipool._boxes import Form, Regions
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._gradients import publishes_gradient
from roipool._pooling import Call
from roipool._request import Pooling
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat._layers import Layer

FORM = Form(boxes="boxes", features="input", read=conventions.boxes_of_images)


def _align(spatial_scale: float, sampling_ratio: int) -> Definition:
    scale = check.real_number("spatial_scale", spatial_scale)
    placed = conventions.roi_align_definition(scale, sampling_ratio, True)
    return placed._replace(group_size=conventions.EACH_BIN)


@for_every_array
@publishes_gradient()
def ps_roi_pool(
    input: ArrayT,
    boxes: Any,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    return_mapping: bool = False,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Position-sensitive ROI pooling like ``torchvision.ops.ps_roi_pool``.

    Parameters
    ----------
    input : ndarray
        Maps, shape (N, C * rows * columns, H, W).
    boxes : array_like or sequence of array_like
        Shape (K, 5): batch index (cut to a whole number), x1, y1, x2, y2 in image pixels; or a
        list of (L, 4), one for each image.
    spatial_scale : float
        Map cells per image pixel.
    return_mapping : bool
        Also return the input channel of each bin, as torchvision's operator does.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns); the mapping is int32.

    Raises
    ------
    ValueError
        If `input` has no multiple of rows * columns channels.

    See Also
    --------
    roipool.ps_roi_pool : The rule of R-FCN, MXNet and Paddle.

    Notes
    -----
    Box corners are rounded to map cells, and no bin reaches the map's last row and column.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import torchvision
    >>> input = np.arange(1, 101, dtype=np.float32).reshape(1, 4, 5, 5)
    >>> torchvision.ps_roi_pool(input, [[0, 0, 0, 5, 5]], 2)
    array([[[[ 7. , 33.5],
             [64.5, 91. ]]]], dtype=float32)
    """
    with Call(FORM, input=input, boxes=boxes) as call:
        scale = check.real_number("spatial_scale", spatial_scale)
        placed = conventions.TORCHVISION_PS_ROI_POOL._replace(scale=scale)
        maps, regions, pooling = call.checked_forward(placed, output_size)
        want_mapping = check.flag("return_mapping", return_mapping)
        pooled = call.average([maps], regions, pooling)
        if not want_mapping:
            return pooled
        xp, sizes = call.library.xp(), pooled.shape[1:]
        channels = xp.arange(math.prod(sizes), dtype=np.int32).reshape(1, *sizes)
        return pooled, channels + xp.zeros((pooled.shape[0], 1, 1, 1), np.int32)


@for_every_array
def ps_roi_pool_backward(
    grad_output: ArrayT,
    boxes: Any,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    exact_gradient: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`ps_roi_pool` with respect to `input`.

    Parameters
    ----------
    input_shape : sequence of int
        (N, C * rows * columns, H, W).
    exact_gradient : bool
        Return the derivative. Otherwise bins reach the map's last row and column, as in
        torchvision's backward, which is not the derivative of its forward for them.
    """
    with Call(FORM, grad_output=grad_output, boxes=boxes) as call:
        placed = conventions.TORCHVISION_PS_ROI_POOL
        if not check.flag("exact_gradient", exact_gradient):
            placed = conventions.TORCHVISION_PS_ROI_POOL_GRADIENT
        placed = placed._replace(scale=check.real_number("spatial_scale", spatial_scale))
        return call.average_backward(*call.checked_backward(placed, input_shape))


@for_every_array
def ps_roi_align(
    input: ArrayT,
    boxes: Any,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> ArrayT:
    """Position-sensitive ROI align like ``torchvision.ops.ps_roi_align``.

    Parameters
    ----------
    input, boxes, output_size, spatial_scale
        As in :func:`ps_roi_pool`.

    Raises
    ------
    ValueError
        If `input` has no multiple of rows * columns channels.

    See Also
    --------
    roipool.ps_roi_align : The same samples, with 0 for a bin without any, and gradients by boxes.

    Notes
    -----
    Boxes are shifted by half a cell, as aligned ones of :func:`roi_align`. With an adaptive grid
    a box without height or width has no samples: its bins are 0 / 0, NaN. A reversed box pools to
    0.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import torchvision
    >>> input = np.arange(1, 101, dtype=np.float32).reshape(1, 4, 5, 5)
    >>> torchvision.ps_roi_align(input, [[0, 0, 0, 5, 5]], 2, sampling_ratio=2)
    array([[[[ 5.5, 33. ],
             [68. , 95.5]]]], dtype=float32)
    """
    with Call(FORM, input=input, boxes=boxes) as call:
        placed = _align(spatial_scale, sampling_ratio)
        maps, regions, pooling = call.checked_forward(placed, output_size)
        pooled = call.average([maps], regions, pooling)
        if pooling.definition.sampling == (0, 0):
            return conventions.nan_where(_are_flat(regions, pooling), pooled)
        return pooled


def _are_flat(regions: Regions, pooling: Pooling) -> Array:
    """Return for each box whether an adaptive grid has 0 rows or columns; a reversed one has less.

    torchvision divides by their product.
    """
    height, width = conventions.bin_lengths(regions, pooling)
    with np.errstate(invalid="ignore"):
        are_finite = height - height + (width - width) == 0
    return are_finite & (((height > -1) & (height <= 0)) | ((width > -1) & (width <= 0)))


@for_every_array
def ps_roi_align_backward(
    grad_output: ArrayT,
    boxes: Any,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> ArrayT:
    """Return the gradient of :func:`ps_roi_align` with respect to `input`.

    Parameters
    ----------
    input_shape : sequence of int
        (N, C * rows * columns, H, W).
    """
    with Call(FORM, grad_output=grad_output, boxes=boxes) as call:
        placed = _align(spatial_scale, sampling_ratio)
        return call.average_backward(*call.checked_backward(placed, input_shape))


@dataclass(eq=False, repr=False)
class PSRoIPool(Layer):
    """``torchvision.ops.PSRoIPool``: :func:`ps_roi_pool` with fixed options."""

    output_size: int | Sequence[int]
    spatial_scale: float

    def forward(self, input: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `input`."""
        pooled = ps_roi_pool(input, rois, self.output_size, self.spatial_scale)
        assert not isinstance(pooled, tuple)
        return pooled

    if TYPE_CHECKING:
        __call__ = forward


@dataclass(eq=False, repr=False)
class PSRoIAlign(Layer):
    """``torchvision.ops.PSRoIAlign``: :func:`ps_roi_align` with fixed options."""

    output_size: int | Sequence[int]
    spatial_scale: float
    sampling_ratio: int

    def forward(self, input: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `input`."""
        return ps_roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio)

    if TYPE_CHECKING:
        __call__ = forward
