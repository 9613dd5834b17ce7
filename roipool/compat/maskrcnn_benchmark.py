"""maskrcnn-benchmark's ROIAlign, unaligned averages of boxes at least one cell long, and ROIPool.

The original's CPU kernel of ROIAlign has no backward; ROIPool has kernels for GPUs only. Both read
boxes of four columns with a wrong stride; here four columns mean that every box is in image 0, as
in Caffe2, from which ROIAlign is derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from roipool import _arguments as check
from roipool._boxes import Form, Regions
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._pooling import Call
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat._conventions import CELLS_FROM_LOWEST_FLOAT32
from roipool.compat._layers import Layer


def _boxes(roi: Any, _: None, images: int, dtype: np.dtype[Any], form: Form) -> Regions:
    table = check.number_array(form.boxes, roi)
    if table.ndim == 2 and table.shape[1] == 4:
        xp = conventions.library_of(table).xp()
        table = xp.concatenate(
            [xp.zeros((table.shape[0], 1), check.dtype_of(table)), table], axis=1
        )
    elif table.ndim != 2 or table.shape[1] != 5:
        raise ValueError(f"roi must have shape (K, 5) or (K, 4), got {tuple(table.shape)}")
    return conventions.numbered_boxes(table, None, images, dtype, form)


FORM = Form(boxes="roi", features="input", read=_boxes)


def _align(spatial_scale: float, sampling_ratio: int) -> Definition:
    return conventions.roi_align_definition(
        conventions.float32_number("spatial_scale", spatial_scale), sampling_ratio
    )


@for_every_array
def roi_align(
    input: ArrayT,
    roi: Any,
    output_size: int | Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
) -> ArrayT:
    """Average ROI align like ``maskrcnn_benchmark.layers.roi_align``.

    Parameters
    ----------
    roi : array_like
        Shape (K, 5): batch index, x1, y1, x2, y2 in image pixels; or (K, 4), all of image 0.
    output_size : int or (int, int)
        Bins: rows and columns. (The original only takes a pair.)

    Notes
    -----
    Cells with a weight of exactly 0 are not read: see :func:`roipool.compat.torchvision.roi_align`.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import maskrcnn_benchmark
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> maskrcnn_benchmark.roi_align(input, [[1, 1, 3, 3]], (2, 2), 1.0, 2)
    array([[[[10., 11.],
             [15., 16.]]]], dtype=float32)
    """
    with Call(FORM, input=input, roi=roi) as call:
        placed = _align(spatial_scale, sampling_ratio)
        return call.averages(call.request(placed, output_size))


@for_every_array
def roi_align_backward(
    grad_output: ArrayT,
    roi: Any,
    input_shape: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
) -> ArrayT:
    """Return the gradient of :func:`roi_align` with respect to `input`."""
    with Call(FORM, grad_output=grad_output, roi=roi) as call:
        placed = _align(spatial_scale, sampling_ratio)
        return call.average_backward(*call.checked_backward(placed, input_shape))


@for_every_array
def roi_pool(
    input: ArrayT,
    roi: Any,
    output_size: int | Sequence[int],
    spatial_scale: float,
    *,
    return_argmax: bool = False,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Max ROI pooling like ``maskrcnn_benchmark.layers.roi_pool``.

    A bin whose cells are all NaN, or below -3.4e38 (also in float64), is -3.4e38 with argmax -1.

    Parameters
    ----------
    input, roi, output_size
        As in :func:`roi_align`.
    return_argmax : bool
        Also return the argmax (``y * W + x``, -1 for none), which the backward needs.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import maskrcnn_benchmark
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> maskrcnn_benchmark.roi_pool(input, [[0, 3, 3, 1, 1]], (2, 2), 1.0)
    array([[[[19., 19.],
             [19., 19.]]]], dtype=float32)
    """
    with Call(FORM, input=input, roi=roi) as call:
        placed = Definition("roi_pool", conventions.float32_number("spatial_scale", spatial_scale))
        pooling = call.request(placed, output_size, rules=CELLS_FROM_LOWEST_FLOAT32)
        want_argmax = check.flag("return_argmax", return_argmax)
        return call.maxima(pooling, return_argmax=want_argmax)


@for_every_array
def roi_pool_backward(
    grad_output: ArrayT, argmax: ArrayT, roi: Any, input_shape: Sequence[int]
) -> ArrayT:
    """Return the gradient of :func:`roi_pool` with respect to `input`."""
    with Call(FORM, grad_output=grad_output, argmax=argmax, roi=roi) as call:
        placed = Definition("roi_pool")
        checked = call.checked_backward(placed, input_shape, rules=CELLS_FROM_LOWEST_FLOAT32)
        gradient, regions, pooling, shape = checked
        return call.maximum_backward(gradient, argmax, regions, pooling, shape)


class _ROIAlign:
    """The original's function of torch's autograd, which programs call by its `apply`."""

    apply = staticmethod(roi_align)


class _ROIPool:
    """The same for :func:`roi_pool`."""

    apply = staticmethod(roi_pool)


@dataclass(eq=False, repr=False)
class ROIAlign(Layer):
    """``maskrcnn_benchmark.layers.ROIAlign``: :func:`roi_align` with fixed options."""

    output_size: int | Sequence[int]
    spatial_scale: float
    sampling_ratio: int

    def forward(self, input: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `input`."""
        return roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio)

    if TYPE_CHECKING:
        __call__ = forward

    def backward(self, grad_output: ArrayT, rois: Any, input_shape: Sequence[int]) -> ArrayT:
        """Return the gradient with respect to `input`."""
        return roi_align_backward(
            grad_output, rois, input_shape, self.spatial_scale, self.sampling_ratio
        )


@dataclass(eq=False, repr=False)
class ROIPool(Layer):
    """``maskrcnn_benchmark.layers.ROIPool``: :func:`roi_pool` with fixed options."""

    output_size: int | Sequence[int]
    spatial_scale: float

    def forward(self, input: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `input`."""
        pooled = roi_pool(input, rois, self.output_size, self.spatial_scale)
        assert not isinstance(pooled, tuple)
        return pooled

    if TYPE_CHECKING:
        __call__ = forward
