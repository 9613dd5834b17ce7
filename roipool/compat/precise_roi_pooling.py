"""PreciseRoIPooling's ``PrRoIPool2D`` and ``prroi_pool2d`` (vacancy/PreciseRoIPooling).

The original runs on CUDA only, in float32, and adds up terms of about 1 before it divides them by
the area of a bin: for bins of 0.02 x 0.02 cells its values are off in the fourth digit, and the
gradient of the boxes by per cents. Here both are right to a few roundings. A batch index outside
the batch, unchecked there, is a ValueError.

Of tensors, with their gradients: :class:`roipool.torch.nn.PrRoIPool2D`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roipool import _arguments as check
from roipool._boxes import Form
from roipool._front_ends import for_every_array
from roipool._pooling import Call
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat._layers import Layer

FORM = Form(size="pooled_height and pooled_width", read=conventions.numbered_boxes)


@for_every_array
def prroi_pool2d(
    features: ArrayT, rois: Any, pooled_height: int, pooled_width: int, spatial_scale: float
) -> ArrayT:
    """Precise ROI pooling as ``prroi_pool2d``: the mean of the interpolated map over each bin.

    Returns
    -------
    ndarray
        Shape (K, C, pooled_height, pooled_width); 0 for a box without area, or reversed.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import precise_roi_pooling
    >>> features = np.array([[[[1, 2], [3, 4]]]], np.float32)
    >>> precise_roi_pooling.prroi_pool2d(features, [[0, 0, 0, 1, 1]], 2, 2, 1.0)
    array([[[[1.75, 2.25],
             [2.75, 3.25]]]], dtype=float32)
    """
    with Call(FORM, features=features, rois=rois) as call:
        definition = conventions.precise_definition(spatial_scale)
        return call.averages(call.request(definition, (pooled_height, pooled_width)))


@for_every_array
def prroi_pool2d_backward(
    grad_output: ArrayT, rois: Any, input_shape: Sequence[int], spatial_scale: float
) -> ArrayT:
    """Return the gradient of :func:`prroi_pool2d` with respect to `features`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, pooled_height, pooled_width).
    """
    with Call(FORM, grad_output=grad_output, rois=rois) as call:
        definition = conventions.precise_definition(spatial_scale)
        return call.average_backward(*call.checked_backward(definition, input_shape))


@for_every_array
def prroi_pool2d_backward_rois(
    grad_output: ArrayT, features: ArrayT, rois: Any, spatial_scale: float
) -> ArrayT:
    """Return the gradient of :func:`prroi_pool2d` with respect to `rois`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, pooled_height, pooled_width), in the dtype of `features`.

    Returns
    -------
    ndarray
        Shape (K, 4): by x1, y1, x2, y2. The original writes zeros for the batch index before them.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import precise_roi_pooling
    >>> features = np.array([[[[1, 2], [3, 4]]]], np.float32)
    >>> precise_roi_pooling.prroi_pool2d_backward_rois(
    ...     np.ones((1, 1, 2, 2), np.float32), features, [[0, 0, 0, 1, 1]], 1.0
    ... )
    array([[2., 4., 2., 4.]], dtype=float32)
    """
    with Call(FORM, grad_output=grad_output, features=features, rois=rois) as call:
        definition = conventions.precise_definition(spatial_scale)
        return call.average_backward_boxes(*call.checked_backward_boxes(definition))


class PrRoIPool2D(Layer):
    """``PrRoIPool2D``: :func:`prroi_pool2d` as a class."""

    def __init__(self, pooled_height: int, pooled_width: int, spatial_scale: float) -> None:
        self.pooled_height: int
        self.pooled_width: int
        self.pooled_height, self.pooled_width = check.size_pair(
            FORM.size, (pooled_height, pooled_width)
        )
        self.spatial_scale: float = check.real_number("spatial_scale", spatial_scale)

    def forward(self, features: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `features`."""
        return prroi_pool2d(
            features, rois, self.pooled_height, self.pooled_width, self.spatial_scale
        )

    if TYPE_CHECKING:
        __call__ = forward

    def extra_repr(self) -> str:
        """Return the options."""
        return (
            f"kernel_size=({self.pooled_height}, {self.pooled_width}), "
            f"spatial_scale={self.spatial_scale}"
        )
