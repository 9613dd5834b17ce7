"""mmcv's deformable ROI pooling, part of ``compat.mmcv``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roipool import _arguments as check
from roipool._arrays import Array
from roipool._boxes import Form
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._gradients import publishes_gradient
from roipool._pooling import Call
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat._layers import CheckedLayer

FORM = Form(features="input", read=conventions.numbered_boxes)
DEFORM_FORM = FORM._replace(offsets="offset")


def _definition(name: str, spatial_scale: float, sampling_ratio: int, gamma: float) -> Definition:
    """Return a definition; without offsets it is ``mmcv_roi_align``, which has no `gamma`."""
    definition = conventions.roi_align_definition(
        conventions.float32_number("spatial_scale", spatial_scale),
        sampling_ratio,
        True,
        definition=name,
    )
    return definition._replace(offset_factor=conventions.float32_number("gamma", gamma))


def _form(offset: Array | None) -> tuple[Form, str]:
    """Return how a call takes its boxes, and its definition."""
    if offset is None:
        return FORM, "mmcv_roi_align"
    return DEFORM_FORM, "mmcv_deform_roi_pool"


@for_every_array
@publishes_gradient()
def deform_roi_pool(
    input: ArrayT,
    rois: Any,
    offset: ArrayT | None,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    gamma: float = 0.1,
) -> ArrayT:
    """Deformable ROI pooling as ``mmcv.ops.deform_roi_pool``.

    Parameters
    ----------
    offset : ndarray or None
        Offsets of bins, shape (K, 2, rows, columns): to the right, then down. None moves no bin.
    gamma : float
        Multiplies offsets, which are shares of the box; kept in float32.

    See Also
    --------
    roipool.deform_roi_pool : The operation, with a mask and gradients of the boxes.

    Notes
    -----
    mmcv has this operator for GPUs only. Cells with a weight of exactly 0 are not read: see
    :func:`roi_align`.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mmcv
    >>> input = np.tile(np.arange(9, dtype=np.float32), (1, 1, 9, 1))
    >>> offset = np.ones((1, 2, 1, 2), np.float32)
    >>> mmcv.deform_roi_pool(input, [[0, 2, 2, 6, 6]], offset, (1, 2)).round(3)
    array([[[[2.9, 4.9]]]], dtype=float32)
    """
    form, name = _form(offset)
    with Call(form, input=input, rois=rois, offset=offset) as call:
        placed = _definition(name, spatial_scale, sampling_ratio, gamma)
        return call.averages(call.request(placed, output_size))


@for_every_array
def deform_roi_pool_backward(
    grad_output: ArrayT,
    rois: Any,
    offset: ArrayT | None,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    gamma: float = 0.1,
) -> ArrayT:
    """Return the gradient of :func:`deform_roi_pool` with respect to `input`."""
    form, name = _form(offset)
    with Call(form, grad_output=grad_output, rois=rois, offset=offset) as call:
        placed = _definition(name, spatial_scale, sampling_ratio, gamma)
        return call.average_backward(*call.checked_backward(placed, input_shape))


@for_every_array
def deform_roi_pool_backward_offset(
    grad_output: ArrayT,
    input: ArrayT,
    rois: Any,
    offset: ArrayT,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    gamma: float = 0.1,
    *,
    exact_gradient: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`deform_roi_pool` with respect to `offset`.

    As in the original, the weights of a sample that is held at the border of the map are those of
    one that is not, so that it is not the derivative there.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, rows, columns), in the dtype of `input`.
    offset : ndarray
        Offsets of bins, shape (K, 2, rows, columns); not None.
    exact_gradient : bool
        Return the derivative of the forward.

    Returns
    -------
    ndarray
        The shape of `offset`; float64 for float64 maps, else float32.
    """
    with Call(DEFORM_FORM, grad_output=grad_output, input=input, rois=rois, offset=offset) as call:
        is_exact = check.flag("exact_gradient", exact_gradient)
        name = "mmcv_deform_roi_pool" if is_exact else "mmcv_deform_roi_offsets"
        placed = _definition(name, spatial_scale, sampling_ratio, gamma)
        return call.moved_backward_offsets(*call.checked_backward_boxes(placed))


@dataclass(eq=False, repr=False)
class DeformRoIPool(CheckedLayer):
    """``mmcv.ops.DeformRoIPool``: :func:`deform_roi_pool` as a class."""

    output_size: int | Sequence[int]
    spatial_scale: float = 1.0
    sampling_ratio: int = 0
    gamma: float = 0.1

    def forward(self, input: ArrayT, rois: Any, offset: ArrayT | None = None) -> ArrayT:
        """Pool `rois` from `input`, with bins moved by `offset`."""
        options = self.output_size, self.spatial_scale, self.sampling_ratio, self.gamma
        return deform_roi_pool(input, rois, offset, *options)

    if TYPE_CHECKING:
        __call__ = forward
